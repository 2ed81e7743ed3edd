"""Versions of a topology, resets and claims on a real Postgres."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import psycopg2
import pytest
from spillway.store import Refused, connect, events, pipelines

from tests.support.database import Database
from tests.support.taxi import TAXI, apply, launch, parse

pytestmark = pytest.mark.integration


# ---- apply ----


def test_apply_stores_everything_once(database: Database, control: Any) -> None:
    first = apply(control)
    assert (first.version, first.changed) == (1, True)
    assert str(first) == "pipeline taxi is now version 1"
    assert pipelines.load(control, "taxi") == parse()
    assert database.sql(
        "read", "select application, version, desired, generation, node, executors from spillway.application order by 1"
    ) == [
        ("front", 1, "stopped", 0, "n1", 1),
        ("heavy", 1, "stopped", 0, None, 2),
    ]
    assert database.sql("read", "select operator, checkpoint, buckets from spillway.operator_state order by 1") == [
        ("bill", 0, 4),
        ("light", 0, 8),
        ("union", 0, 4),
    ]
    claims = [r[0] for r in database.sql("read", "select topic from spillway.topic_claim order by 1")]
    dead = [f"taxi.{operator}.dead" for operator in ("union", "bill", "light")]
    assert claims == sorted(["yellow", "taxi.union.bill", "taxi.union.light", "taxi.bill.out", "taxi.light.out", *dead])
    again = apply(control, text=TAXI + "# only a comment\n")
    assert (again.version, again.changed) == (1, False)
    assert str(again) == "pipeline taxi is unchanged, version 1 stays in force"
    assert database.sql("read", "select count(*) from spillway.pipeline_version") == [(1,)]


def test_versions_and_what_they_restart(database: Database, control: Any) -> None:
    apply(control)
    pipelines.set_desired(control, "taxi", "running", "tester")
    changed = apply(control, ("jobs:bill", "jobs:bill2"))
    assert (changed.version, [str(c) for c in changed.changes]) == (
        2,
        ["operator bill: function: jobs:bill → jobs:bill2 (restarts heavy)"],
    )
    versions = dict(database.sql("read", "select application, version from spillway.application"))
    assert versions == {"front": 1, "heavy": 2}, "what does not change goes on running its version"
    assert apply(control, ("priority: 2", "priority: 3")).version == 3
    assert dict(database.sql("read", "select application, version from spillway.application")) == {"front": 1, "heavy": 3}
    assert pipelines.load(control, "taxi", 1) == parse()
    with pytest.raises(Refused, match=r"pipeline taxi has no version 9\."):
        pipelines.load(control, "taxi", 9)


def test_a_decided_node_survives_an_unrelated_apply(database: Database, control: Any) -> None:
    apply(control)
    database.sql("control", "update spillway.application set node = 'n2', executors = 3 where application = 'front'")
    apply(control, ("jobs:bill", "jobs:bill2"))
    assert database.sql("read", "select node, executors from spillway.application where application = 'front'") == [("n2", 3)]
    apply(control, ("node: n1", "node: n3"))
    assert database.sql("read", "select node, executors from spillway.application where application = 'front'") == [("n3", 3)]


def test_a_decided_node_is_taken_back_by_declaring_it_and_then_the_old_one(database: Database, control: Any) -> None:
    node = "select node from spillway.application where application = %s"
    apply(control)
    database.sql("control", "update spillway.application set node = 'n2'")
    apply(control, ("node: n1", "node: n2"))
    apply(control)
    assert database.sql("read", node, "front") == [("n1",)]
    apply(control, ("heavy: {", "heavy: {node: n2, "))
    apply(control)
    assert database.sql("read", node, "heavy") == [(None,)]


def test_vanished_application_must_be_stopped(database: Database, control: Any) -> None:
    apply(control)
    one = (
        ("front: {operators: [union, light], node: n1}", "front: {operators: [union, light, bill]}"),
        ("  heavy: {operators: [bill], executors: 2}\n", ""),
    )
    pipelines.set_desired(control, "taxi", "running", "tester")
    words = (
        "application heavy is no longer declared but still runs: "
        "stop it first with `spillway stop taxi --wait`, apply, and start it again."
    )
    with pytest.raises(Refused) as raised:
        apply(control, *one)
    assert str(raised.value) == words
    launch(database, "heavy")
    pipelines.set_desired(control, "taxi", "stopped", "tester")
    with pytest.raises(Refused) as raised:
        apply(control, *one)
    assert str(raised.value) == words, "asked to stop, but its driver still beats"
    launch(database, "heavy", "stopped")
    assert apply(control, *one).version == 2
    assert database.sql("read", "select application from spillway.application") == [("front",)]


def test_moved_operator_needs_its_application_stopped(database: Database, control: Any) -> None:
    apply(control)
    launch(database, "front")
    move = (("[union, light]", "[union]"), ("[bill]", "[bill, light]"))
    with pytest.raises(Refused, match="operator light moves from application front, which still runs, to heavy"):
        apply(control, *move)
    database.sql("control", "update spillway.lease set released_at = now()")
    assert apply(control, *move).version == 2


def test_buckets_are_fixed_once_a_driver_ran(database: Database, control: Any) -> None:
    apply(control)
    other = ("kind: aggregate, buckets: 4", "kind: aggregate, buckets: 16")
    assert apply(control, other).version == 2, "nothing ran yet: there is no checkpoint to contradict"
    launch(database, "heavy", "stopped")
    with pytest.raises(Refused) as raised:
        apply(control)
    assert str(raised.value) == (
        "operator bill has 16 buckets, which its checkpoint fixes, and the file says 4: keep `buckets: 16`, change them while it "
        "runs with `spillway rescale taxi bill --buckets 4`, give the operator another name, or start it anew with "
        "`spillway reset taxi bill`."
    )
    with pytest.raises(Refused) as raised:
        apply(control, ("kind: aggregate, buckets: 4", "buckets: 16"))
    assert str(raised.value) == (
        "operator bill changes from aggregate to stateless, which its checkpoint does not allow: "
        "keep `kind: aggregate`, give the operator another name, or start it anew with `spillway reset taxi bill`."
    )
    with pytest.raises(
        Refused, match=r"edge union:light has 8 partitions and the file says 2, but Kafka cannot take partitions away"
    ):
        apply(control, other, ("{from: union, to: light}", "{from: union, to: light, partitions: 2}"))
    stateless = ('"jobs:union", buckets: 4', '"jobs:union", buckets: 6')
    assert apply(control, other, stateless).version == 3, "front was not launched yet"
    launch(database, "front", "stopped")
    with pytest.raises(Refused, match=r"operator union has 6 buckets, .* keep `buckets: 6`, give the operator another name"):
        apply(control, other)
    assert database.sql("read", "select max(version) from spillway.pipeline_version") == [(3,)]


def test_what_a_plan_has_changed_survives_an_apply_that_says_what_it_said(database: Database, control: Any) -> None:
    """Executors and node as declared count where the declaration changes; buckets of a launched checkpoint never do."""
    apply(control)
    launch(database, "heavy", "stopped")
    database.sql("control", "update spillway.operator_state set buckets = 16 where operator = 'bill'")
    database.sql("control", "update spillway.application set executors = 3, node = 'n2' where application = 'heavy'")
    elsewhere = ("jobs:bill", "jobs:bill2")
    assert apply(control, elsewhere).changed
    rescaled = "select a.executors, a.node, s.buckets from spillway.application a, spillway.operator_state s"
    rescaled += " where a.application = 'heavy' and s.operator = 'bill'"
    assert database.sql("read", rescaled) == [(3, "n2", 16)]
    with pytest.raises(Refused, match="operator bill has 16 buckets"):
        apply(control, elsewhere, ("kind: aggregate, buckets: 4", "kind: aggregate, buckets: 8"))
    assert apply(control, elsewhere, ("kind: aggregate, buckets: 4", "kind: aggregate, buckets: 16")).changed
    assert database.sql("read", rescaled) == [(3, "n2", 16)]
    with pytest.raises(Refused, match=r"change them while it runs with `spillway rescale taxi bill --buckets 4`"):
        apply(control, elsewhere)


INPUTS = (
    (("{topic: yellow, to: union}", "{topic: yellow, to: union}\n  - {topic: green, to: union}"), "green, yellow"),
    (("{topic: yellow, to: union}", "{topic: green, to: union}"), "green"),
)


@pytest.mark.parametrize(("change", "says"), INPUTS, ids=["added", "renamed"])
def test_inputs_are_fixed_once_a_driver_ran(database: Database, control: Any, change: tuple[str, str], says: str) -> None:
    """Spark ends a query whose sources are not those of its checkpoint."""
    apply(control)
    launch(database, "heavy", "stopped")
    assert apply(control, change).version == 2, "union was not launched: only heavy was"
    apply(control)
    launch(database, "front", "stopped")
    with pytest.raises(Refused) as raised:
        apply(control, change)
    assert str(raised.value) == (
        "operator union was launched with input from yellow, fixed for the life of its checkpoint, and the file says "
        f"{says}: keep its input edges, give the operator another name, or start it anew with `spillway reset taxi union`."
    )
    pipelines.reset(control, "taxi", "union", "tester")
    assert apply(control, change).version == 4


def test_a_removed_input_and_a_removed_operator_that_comes_back(database: Database, control: Any) -> None:
    apply(control)
    launch(database, "front", "stopped")
    launch(database, "heavy", "stopped")
    with pytest.raises(Refused, match=r"operator light was launched with input from taxi\.union\.light, weather, fixed .* says "):
        apply(control, ("  - {topic: weather, to: light, shared: true}\n", ""))
    without = (
        ("  - {from: union, to: bill, when_silent: open}\n", ""),
        ('  bill: {function: "jobs:bill", kind: aggregate, buckets: 4, query: {priority: 2, min_accuracy: 0.5}}\n', ""),
        ("  heavy: {operators: [bill], executors: 2}\n", ""),
    )
    assert apply(control, *without).version == 2
    words = r"operator bill was launched with input from taxi\.union\.bill, fixed .* and the file says other, taxi\.union\.bill:"
    more = ("{from: union, to: bill", "{topic: other, to: bill}\n  - {from: union, to: bill")
    with pytest.raises(Refused, match=words):
        apply(control, more)
    pipelines.remove(control, "taxi", "tester")
    with pytest.raises(Refused, match=words):
        apply(control, more)
    assert pipelines.reset(control, "taxi", "bill", "tester") == 1, "also of a pipeline that is out of force"
    assert apply(control, more).version == 3


def test_edges_in_another_order_are_the_same_version(database: Database, control: Any) -> None:
    apply(control)
    launch(database, "front", "stopped")
    first, second = "  - {topic: weather, to: light, shared: true}\n", "  - {from: union, to: light}\n"
    moved = apply(control, (first, ""), (second, second + first))
    assert (moved.version, moved.changed) == (1, False)


# ---- reset ----


def test_reset_starts_an_operator_anew(database: Database, control: Any) -> None:
    apply(control)
    launch(database, "heavy", "stopped")
    assert pipelines.reset(control, "taxi", "bill", "tester") == 1
    assert database.sql("read", "select operator, checkpoint, launched_at is null from spillway.operator_state order by 1") == [
        ("bill", 1, True),
        ("light", 0, True),
        ("union", 0, True),
    ]
    last = events.recent(control)[-1]
    assert (last.kind, last.subject, last.actor, last.text) == (
        "reset",
        "bill",
        "tester",
        "operator bill starts anew with checkpoint 1: its state and its position are gone",
    )
    launch(database, "heavy", "stopped", generation=2)
    assert database.sql(
        "read", "select checkpoint, launched_at is null from spillway.operator_state where operator = 'bill'"
    ) == [(1, False)]
    with pytest.raises(Refused, match="operator bill has 4 buckets"):
        apply(control, ("kind: aggregate, buckets: 4", "kind: aggregate, buckets: 16"))
    assert pipelines.reset(control, "taxi", "bill", "tester") == 2
    assert apply(control, ("kind: aggregate, buckets: 4", "kind: aggregate, buckets: 16")).version == 2


def test_reset_needs_its_application_stopped(database: Database, control: Any) -> None:
    with pytest.raises(Refused, match=r"there is no pipeline taxi: none was applied yet"):
        pipelines.reset(control, "taxi", "bill", "tester")
    apply(control)
    with pytest.raises(Refused) as raised:
        pipelines.reset(control, "taxi", "bil", "tester")
    assert str(raised.value) == "pipeline taxi has no operator bil: its operators are bill, light, union."
    words = "operator bill of pipeline taxi still runs (application heavy): stop it first with `spillway stop taxi --wait`."
    pipelines.set_desired(control, "taxi", "running", "tester")
    with pytest.raises(Refused) as raised:
        pipelines.reset(control, "taxi", "bill", "tester")
    assert str(raised.value) == words
    database.sql("control", "update spillway.application set generation = 1, launched_at = now() where application = 'heavy'")
    pipelines.set_desired(control, "taxi", "stopped", "tester")
    with pytest.raises(Refused) as raised:
        pipelines.reset(control, "taxi", "bill", "tester")
    assert str(raised.value) == words, "launched a moment ago: its driver may be about to read the checkpoint"
    launch(database, "heavy")
    with pytest.raises(Refused) as raised:
        pipelines.reset(control, "taxi", "bill", "tester")
    assert str(raised.value) == words, "asked to stop, but its driver still beats"
    assert database.sql("read", "select distinct checkpoint from spillway.operator_state") == [(0,)]
    assert pipelines.reset(control, "taxi", "union", "tester") == 1, "another application does not matter"
    launch(database, "heavy", "stopped")
    assert pipelines.reset(control, "taxi", "bill", "tester") == 1


def test_a_launch_waits_for_a_reset_that_is_under_way(database: Database, control: Any) -> None:
    apply(control)
    launch(database, "heavy", "stopped")
    pipelines.refuse_reset(control, "taxi", "bill")
    launching = database.connect("control")
    with launching, launching.cursor() as cursor:
        cursor.execute("set lock_timeout = '300ms'")
        with pytest.raises(psycopg2.errors.LockNotAvailable):
            cursor.execute("update spillway.application set desired = 'running' where application = 'heavy'")
        launching.rollback()
    launching.close()


OTHER = """\
pipeline: other
operators:
  f: {function: "jobs:f"}
edges:
  - {topic: TOPIC, to: f, shared: SHARED}
"""


@pytest.mark.parametrize(
    ("topic", "shared", "clash"),
    [
        ("yellow", "false", True),
        ("yellow", "true", True),
        ("weather", "false", True),
        ("weather", "true", False),
        ("taxi.bill.out", "true", True),
        ("taxi.union.dead", "false", True),
        ("taxi_union.dead", "true", True),
        ("elsewhere", "false", False),
    ],
)
def test_claims(database: Database, control: Any, topic: str, shared: str, clash: bool) -> None:
    apply(control)
    text = OTHER.replace("TOPIC", topic).replace("SHARED", shared)
    if not clash:
        assert apply(control, text=text).version == 1
        return
    with pytest.raises(Refused) as raised:
        apply(control, text=text)
    claimed = topic.replace("taxi_", "taxi.")
    assert str(raised.value).startswith(f"topic {claimed} is claimed by pipeline other and by pipeline taxi: use another topic")
    assert pipelines.names(control) == ["taxi"], "a refusal changes nothing"
    pipelines.remove(control, "taxi", "tester")
    assert apply(control, text=text).version == 1, "a removed pipeline frees its topics"


def test_a_claim_is_given_up_with_the_version(control: Any) -> None:
    apply(control)
    text = OTHER.replace("TOPIC", "yellow").replace("SHARED", "false")
    apply(control, ("topic: yellow", "topic: green"))
    assert apply(control, text=text).version == 1


def test_applied_at_the_same_time(database: Database, control: Any) -> None:
    """Ten versions from ten connections: each is stored, and exactly one is in force."""
    errors: list[BaseException] = []

    def one(number: int) -> None:
        conn = connect("control", dsn=database.dsn("control"))
        try:
            pipelines.apply(conn, replace(parse(), description=str(number)), "", "tester")
        except BaseException as error:
            errors.append(error)
        finally:
            conn.close()

    threads = [threading.Thread(target=one, args=(n,)) for n in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert errors == []
    assert database.sql("read", "select count(*), max(version) from spillway.pipeline_version") == [(10, 10)]
    assert pipelines.in_force(control, "taxi").version == 10  # type: ignore[union-attr]


def test_remove_needs_a_stopped_pipeline(control: Any) -> None:
    apply(control)
    pipelines.set_desired(control, "taxi", "running", "tester")
    with pytest.raises(Refused, match=r"pipeline taxi still runs \(front, heavy\): stop it first"):
        pipelines.remove(control, "taxi", "tester")
    pipelines.set_desired(control, "taxi", "stopped", "tester")
    pipelines.remove(control, "taxi", "tester")
    assert pipelines.names(control) == []
    assert apply(control).version == 2, "versions go on counting"


def test_a_removed_application_that_comes_back_is_not_older_than_its_lease(database: Database, control: Any) -> None:
    apply(control)
    launch(database, "front", "stopped", generation=40)
    pipelines.remove(control, "taxi", "tester")
    apply(control)
    found = dict(database.sql("read", "select application, generation from spillway.application"))
    assert found == {"front": 40, "heavy": 0}


def test_desired(database: Database, control: Any) -> None:
    with pytest.raises(Refused, match=r"there is no pipeline taxi: none was applied yet, use `spillway topology apply FILE`\."):
        pipelines.set_desired(control, "taxi", "running", "tester")
    apply(control)
    database.sql("control", "update spillway.application set attempts = 7")
    assert pipelines.set_desired(control, "taxi", "running", "tester") is True
    assert pipelines.set_desired(control, "taxi", "running", "tester") is False
    assert database.sql("read", "select distinct desired, attempts from spillway.application") == [("running", 0)]
    with pytest.raises(Refused, match=r"there is no pipeline taxy: did you mean taxi\?"):
        pipelines.set_desired(control, "taxy", "running", "tester")
    grown = apply(
        control,
        (
            "  heavy: {operators: [bill], executors: 2}",
            "  heavy: {operators: [bill], executors: 2}\n  more: {operators: [extra]}",
        ),
        ("edges:\n", "  extra: {function: 'jobs:x'}\nedges:\n  - {topic: x, to: extra}\n"),
    )
    assert grown.version == 2
    assert database.sql("read", "select desired from spillway.application where application = 'more'") == [("running",)]
