from __future__ import annotations

from dataclasses import replace
from importlib import import_module

from spillway.act.launch import LaunchSpec
from spillway.act.launch.conf import Cluster, cluster_from, kubernetes, spark_properties, standalone, yarn

SPEC = LaunchSpec(pipeline="taxi", application="heavy", generation=4, store="7f3a", executors=2, max_executors=5, slots=2)
CLUSTER = Cluster(master="spark://10.0.0.1:7077", jars="/opt/jars/", checkpoints="file:/data/checkpoints")


def test_a_standalone_application_begins_small_and_has_room_to_grow():
    properties = standalone(SPEC, CLUSTER)
    assert properties["spark.cores.max"] == "10"
    assert properties["spark.executor.cores"] == "2"
    assert properties["spark.dynamicAllocation.enabled"] == "true"
    assert properties["spark.dynamicAllocation.initialExecutors"] == properties["spark.dynamicAllocation.minExecutors"] == "2"
    timeouts = {k: v for k, v in properties.items() if k.startswith("spark.dynamicAllocation.") and "imeout" in k}
    assert len(timeouts) == 5
    assert set(timeouts.values()) == {"365d"}
    assert "spark.executor.instances" not in properties


def test_python_workers_are_made_by_a_daemon_that_is_there():
    assert all(
        callable(import_module(p(SPEC, CLUSTER)["spark.python.daemon.module"]).main) for p in (standalone, kubernetes, yarn)
    )


def test_more_executors_than_declared_still_fit():
    assert standalone(replace(SPEC, executors=7), CLUSTER)["spark.cores.max"] == "14"


def test_driver_and_executors_are_pinned_to_the_node_by_its_tag():
    tags = {k: v for k, v in standalone(replace(SPEC, node="n2"), CLUSTER).items() if ".resource." in k}
    assert tags == {"spark.executor.resource.n2.amount": "1", "spark.driver.resource.n2.amount": "1"}
    assert not [k for k in standalone(SPEC, CLUSTER) if ".resource." in k]


def test_the_declared_conf_wins_over_suggestions_and_loses_against_what_spillway_owns():
    declared = {
        "spark.locality.wait": "1s",
        "spark.log.level": "INFO",
        "spark.my.own": "yes",
        "spark.app.name": "mine",
        "spark.cores.max": "1",
        "spark.sql.adaptive.enabled": "true",
        "spark.dynamicAllocation.enabled": "false",
        "spark.executor.instances": "9",
        "spark.driver.supervise": "true",
    }
    properties = standalone(replace(SPEC, conf=declared), CLUSTER)
    assert {k: properties[k] for k in ("spark.locality.wait", "spark.log.level", "spark.my.own")} == {
        "spark.locality.wait": "1s",
        "spark.log.level": "INFO",
        "spark.my.own": "yes",
    }
    owned = standalone(SPEC, CLUSTER)
    for key in ("spark.app.name", "spark.cores.max", "spark.sql.adaptive.enabled", "spark.dynamicAllocation.enabled"):
        assert properties[key] == owned[key]
    assert properties["spark.driver.supervise"] == "false"
    assert "spark.executor.instances" not in properties


def test_declared_java_options_and_class_paths_are_added_not_replaced():
    conf = {"spark.executor.extraJavaOptions": "-Dx=1", "spark.driver.extraClassPath": "/mine.jar"}
    properties = standalone(replace(SPEC, conf=conf), CLUSTER)
    assert properties["spark.executor.extraJavaOptions"] == "-XX:+UseSerialGC -Dx=1"
    assert properties["spark.driver.extraJavaOptions"] == "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    assert properties["spark.driver.extraClassPath"] == "/opt/jars/*:/mine.jar"
    assert properties["spark.executor.extraClassPath"] == "/opt/jars/*"


def test_an_archive_of_classes_is_used_with_the_class_path_it_was_made_for():
    cluster = replace(CLUSTER, archive="/c/spark.jsa", spark_jars="/spark/jars")
    conf = {"spark.driver.extraJavaOptions": "-Dx=1", "spark.executor.extraClassPath": "/mine.jar"}
    properties = standalone(replace(SPEC, conf=conf), cluster)
    assert properties["spark.driver.extraClassPath"] == "/opt/jars/*:/spark/jars/*"
    assert properties["spark.executor.extraClassPath"] == "/opt/jars/*:/spark/jars/*:/mine.jar"
    assert properties["spark.driver.extraJavaOptions"].endswith("-XX:SharedArchiveFile=/c/spark.jsa -Xlog:cds=off -Dx=1")
    assert "-XX:SharedArchiveFile=/c/spark.jsa" in properties["spark.executor.extraJavaOptions"]
    assert "SharedArchiveFile" not in standalone(SPEC, CLUSTER)["spark.driver.extraJavaOptions"]


def test_executors_compile_fully_except_where_everything_lives_on_one_machine():
    wide, narrow = (standalone(SPEC, replace(CLUSTER, local_ip=ip)) for ip in (None, "127.0.0.1"))
    assert "TieredStopAtLevel" not in wide["spark.executor.extraJavaOptions"]
    assert "TieredStopAtLevel=1" in narrow["spark.executor.extraJavaOptions"]


def test_identity_memory_state_and_ports():
    properties = spark_properties(replace(SPEC, driver_memory_mb=600, executor_memory_mb=700), CLUSTER)
    state = "spark.sql.streaming.stateStore."
    expected = {
        "spark.app.name": "spillway:taxi:heavy:4",
        "spark.spillway.store": "7f3a",
        "spark.driver.memory": "600m",
        "spark.executor.memory": "700m",
        "spark.ui.port": "0",
        "spark.port.maxRetries": "0",
        f"{state}providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
        f"{state}rocksdb.changelogCheckpointing.enabled": "true",
    }
    assert {k: properties[k] for k in expected} == expected


def test_the_quick_file_manager_is_for_local_checkpoints_only():
    key = "spark.sql.streaming.checkpointFileManagerClass"
    assert spark_properties(SPEC, CLUSTER)[key].endswith(".FileSystemBasedCheckpointFileManager")
    assert key not in spark_properties(SPEC, replace(CLUSTER, checkpoints="s3a://bucket/checkpoints"))


def test_a_driver_listens_on_the_one_address_of_a_single_machine_and_else_where_spark_chooses():
    local = cluster_from({"SPARK_LOCAL_IP": "127.0.0.1"}, "spark://m:1")
    assert (
        spark_properties(SPEC, local)["spark.driver.host"]
        == spark_properties(SPEC, local)["spark.driver.bindAddress"]
        == "127.0.0.1"
    )
    assert "spark.driver.host" not in spark_properties(SPEC, CLUSTER)


def test_kubernetes_selects_nodes_by_label_and_names_the_pod():
    properties = kubernetes(replace(SPEC, node="pool_a"), CLUSTER)
    assert properties["spark.kubernetes.node.selector.spillway/node"] == "pool_a"
    assert properties["spark.kubernetes.driver.pod.name"] == "spillway-7f3a-taxi-heavy-4"
    assert properties["spark.executor.instances"] == "2"
    assert properties["spark.executor.extraClassPath"] == "/opt/jars/*"
    assert not [k for k in kubernetes(SPEC, CLUSTER) if "node.selector" in k]


def test_yarn_places_by_node_label_and_uploads_the_jars():
    properties = yarn(replace(SPEC, node="fast"), CLUSTER)
    assert properties["spark.yarn.am.nodeLabelExpression"] == properties["spark.yarn.executor.nodeLabelExpression"] == "fast"
    assert properties["spark.jars"] == "/opt/jars/*.jar"
    assert properties["spark.yarn.tags"] == "spillway-7f3a"
    assert properties["spark.yarn.maxAppAttempts"] == "1"


def test_no_secret_travels():
    secret = {"SPILLWAY_DSN_JOB": "postgresql://job:hunter2@db/line", "SPILLWAY_JARS": "/j", "SPILLWAY_CHECKPOINTS": "file:/c"}
    for make in (standalone, kubernetes, yarn):
        assert "hunter2" not in str(make(SPEC, cluster_from(secret, "spark://m:1")))
