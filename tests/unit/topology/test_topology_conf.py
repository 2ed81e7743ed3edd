"""What the launchers set themselves, a topology may not set; what they only suggest, it may."""

from __future__ import annotations

import pytest
from spillway.act.launch import LaunchSpec
from spillway.act.launch.conf import SUGGESTED, Cluster, kubernetes, standalone, yarn
from spillway.topology.conf import refusal

MERGED = ("extraJavaOptions", "extraClassPath", "spark.jars")
SPEC = LaunchSpec(pipeline="p", application="a", generation=1, store="s", node="n1")
CLUSTER = Cluster(master="spark://h:1", jars="/jars", checkpoints="file:/c", local_ip="127.0.0.1")


@pytest.mark.parametrize("properties", [standalone, kubernetes, yarn], ids=["standalone", "kubernetes", "yarn"])
def test_what_a_launcher_sets_is_refused(properties) -> None:  # type: ignore[no-untyped-def]
    owned = set(properties(SPEC, CLUSTER)) - set(SUGGESTED)
    assert owned
    assert {key for key in owned if not key.endswith(MERGED) and refusal(key) is None} == set()


@pytest.mark.parametrize("key", [*SUGGESTED, "spark.jars", "spark.executor.extraJavaOptions", "spark.ui.enabled"])
def test_what_is_only_suggested_may_be_given(key: str) -> None:
    assert refusal(key) is None
