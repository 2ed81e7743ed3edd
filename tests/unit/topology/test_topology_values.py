"""Defaults, round trips and differences of topologies."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
from spillway.model.topology import Delivery, Output, Parallelism, Pipeline, Query, Shed, Silent, SinkType
from spillway.topology import check_files, check_text, diff
from spillway.topology.ddl import DdlError, columns
from spillway.topology.declare import APPLICATION, EDGE, OPERATOR, OUTPUT, PIPELINE
from spillway.topology.diff import restarts
from topology_worlds import GOOD, as_document, random_pipeline

ROOT = Path(__file__).resolve().parents[3]
SHIPPED = sorted((ROOT / "pipelines").glob("*.yaml"))


def good(text: str = GOOD) -> Pipeline:
    pipeline, problems = check_text(text)
    assert pipeline is not None, problems
    return pipeline


def test_the_shipped_pipelines_are_good_together() -> None:
    assert {p.stem for p in SHIPPED} >= {"taxi", "knn", "wordcount", "ads"}
    assert check_files(SHIPPED).problems == ()


def test_defaults() -> None:
    pipeline = good(
        "pipeline: p\nwhen_silent: open\n"
        "operators:\n  f: {function: 'a:b', parallelism: {start: 3}}\n"
        "edges:\n  - {topic: t, to: f}\n"
    )
    (operator,), (edge,), (application,) = pipeline.operators, pipeline.edges, pipeline.applications
    assert (operator.buckets, operator.parallelism) == (8, Parallelism(start=3, min=1, max=3))
    assert operator.query == Query()
    assert operator.output == Output(topic="p.f.out")
    assert (edge.name, edge.partitions, edge.shed, edge.when_silent) == ("t:f", 8, Shed.RANDOM, Silent.OPEN)
    assert (application.name, application.operators, application.executors) == ("f", ("f",), 3)


def test_declared_values_arrive() -> None:
    pipeline = good()
    assert (pipeline.trigger_s, pipeline.latency_constraint_s, pipeline.lineage) == (2.0, 10.0, True)
    assert pipeline.operator("union").query is None
    assert pipeline.operator("bill").query == Query(priority=2, min_accuracy=0.5)
    inner = {e.name: e for e in pipeline.edges}
    assert inner["union:bill"].delivery is Delivery.AT_LEAST_ONCE
    assert inner["union:bill"].topic == "taxi.union.bill"
    assert inner["union:once"].shed is Shed.BY_KEY, "a dedup without a declared strategy gets the only right one"
    assert inner["taxi.yellow:union"].shed is Shed.BY_KEY, "and so does what is in front of it behind a stateless operator"
    assert inner["union:bill"].shed is Shed.RANDOM
    assert pipeline.application("back").driver_memory_mb == 1024
    assert pipeline.application("front").conf == {"spark.ui.enabled": "false"}


def test_output_to_postgres_and_to_nowhere() -> None:
    table = good(GOOD.replace("{topic: taxi.bill.out}", "{type: postgres, table: out.bill, keys: [zone, day]}"))
    assert table.operator("bill").output == Output(type=SinkType.POSTGRES, table="out.bill", keys=("zone", "day"))
    assert good(GOOD.replace("{topic: taxi.bill.out}", "{type: none}")).operator("bill").output == Output(type=SinkType.NONE)


def test_merge_keys_and_folded_texts() -> None:
    text = GOOD.replace(
        "  once:\n    function: jobs.taxi:once\n",
        "  once:\n    <<: {function: 'jobs.taxi:other', buckets: 16}\n    function: jobs.taxi:once\n",
    )
    text = text.replace(
        'schema: "trip_id bigint not null, zone string"', "schema: >\n      trip_id bigint not null,\n      zone string"
    )
    pipeline = good(text)
    assert (pipeline.operator("once").function, pipeline.operator("once").buckets) == ("jobs.taxi:once", 16)
    assert columns(pipeline.operator("union").schema or "") == ("trip_id", "zone")


@pytest.mark.parametrize("seed", range(200))
def test_random_topologies_survive_json_and_equal_themselves(seed: int) -> None:
    pipeline = random_pipeline(seed)
    again = Pipeline.from_json(pipeline.to_json())
    assert again == pipeline
    assert again.to_json() == pipeline.to_json()
    assert diff(pipeline, again) == []


@pytest.mark.parametrize("seed", range(100))
def test_random_topologies_survive_being_written_and_read(seed: int) -> None:
    pipeline = random_pipeline(seed)
    text = json.dumps(as_document(pipeline), ensure_ascii=False)  # JSON is YAML
    assert check_text(text) == (pipeline, [])


@pytest.mark.parametrize("seed", range(50))
def test_the_order_of_edges_in_the_file_does_not_matter(seed: int) -> None:
    pipeline = random_pipeline(seed)
    document = as_document(pipeline)
    random.Random(seed).shuffle(document["edges"])
    assert check_text(json.dumps(document)) == (pipeline, [])


def test_edges_of_one_operator_in_another_order_restart_its_application_alone() -> None:
    pipeline, problems = check_text(
        "pipeline: p\noperators: {a: {function: 'm:a'}, b: {function: 'm:b'}}\n"
        "edges: [{topic: x, to: a}, {topic: z, to: b}, {topic: y, to: b}]\n"
    )
    assert pipeline is not None, problems
    assert [e.name for e in pipeline.edges] == ["x:a", "y:b", "z:b"]
    x, y, z = pipeline.edges
    assert restarts(diff(pipeline, replace(pipeline, edges=(y, z, x)))) == frozenset()
    assert restarts(diff(pipeline, replace(pipeline, edges=(x, z, y)))) == {"b"}


@pytest.mark.parametrize("seed", range(100))
def test_diff_is_empty_only_for_equal_topologies(seed: int) -> None:
    pipeline = random_pipeline(seed)
    other = replace(random_pipeline(seed + 1000), name=pipeline.name)
    assert (diff(pipeline, other) == []) == (pipeline == other)
    shuffled = replace(pipeline, edges=pipeline.edges[::-1], operators=pipeline.operators[::-1])
    assert (diff(pipeline, shuffled) == []) == (pipeline == shuffled)


def words(old: str, new: str) -> list[str]:
    return [str(change) for change in diff(good(), good(GOOD.replace(old, new)))]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("description: trips", "description: rides", ["pipeline taxi: description: trips → rides"]),
        ("trigger: 2s", "trigger: 1s", ["pipeline taxi: trigger_s: 2.0 → 1.0 (restarts front, back)"]),
        (
            "min_accuracy: 0.5",
            "min_accuracy: 0.7",
            ["operator bill: query: {priority: 2, min_accuracy: 0.5} → {priority: 2, min_accuracy: 0.7}"],
        ),
        ("max: 4}", "max: 3}", ["operator union: parallelism: {start: 1, min: 1, max: 4} → {start: 1, min: 1, max: 3}"]),
        ("jobs.taxi:once", "jobs.taxi:twice", ["operator once: function: jobs.taxi:once → jobs.taxi:twice (restarts back)"]),
        ("when_silent: open", "when_silent: hold", ["edge union:bill: when_silent: open → hold (restarts front)"]),
        ("to: once}", "to: once, partitions: 16}", ["edge union:once: partitions: 8 → 16 (restarts front, back)"]),
        ("node: n1", "node: n2", ["application front: node: n1 → n2 (restarts front)"]),
        ("node: n1, ", "", ["application front: node: n1 → none (restarts front)"]),
    ],
)
def test_diff_says_what_changes_and_what_restarts(old: str, new: str, expected: list[str]) -> None:
    assert words(old, new) == expected


WEIGHTS = """\
pipeline: p
operators: {a: {function: 'm:f'}, b: {function: 'm:f', kind: aggregate, weight: true}, c: {function: 'm:f', weight: WANTED}}
edges: [{topic: t, to: a}, {from: a, to: b}, {from: a, to: c}, {topic: u, to: c}]
"""


def test_weights_travel_from_every_operator_above_one_that_asks() -> None:
    pipeline = good(WEIGHTS.replace("WANTED", "true"))
    assert [(o.name, o.weight, pipeline.carries_weight(o.name)) for o in pipeline.operators] == [
        ("a", False, True),
        ("b", True, False),
        ("c", True, False),
    ]


def test_whoever_begins_or_ends_to_carry_weights_restarts() -> None:
    old, new = good(WEIGHTS.replace("WANTED", "false")), good(WEIGHTS.replace("WANTED", "true"))
    assert [str(c) for c in diff(old, new)] == ["operator c: weight: false → true (restarts c)"]
    none = good(WEIGHTS.replace("WANTED", "false").replace("weight: true", "weight: false"))
    assert [str(c) for c in diff(none, old)] == ["operator b: weight: false → true (restarts a, b)"]


def test_diff_of_a_moved_operator_restarts_both_sides() -> None:
    new = good(GOOD.replace("[union, bill]", "[union]").replace("[once]", "[once, bill]"))
    changes = diff(good(), new)
    assert [c.subject for c in changes] == ["application front", "application back"]
    assert restarts(changes) == {"front", "back"}


def test_diff_of_a_new_and_of_a_removed_part() -> None:
    changes = [str(c) for c in diff(None, good())]
    assert changes[0] == "pipeline taxi: added"
    assert "edge union:once: added" in changes
    smaller = GOOD.replace("  once:\n    function: jobs.taxi:once\n    kind: dedup\n", "").replace(
        "  - {from: union, to: once}\n", ""
    )
    smaller = smaller.replace("  back: {operators: [once], executors: 2, driver_memory: 1g}\n", "")
    assert [str(c) for c in diff(good(), good(smaller))] == [
        "operator once: removed",
        "edge taxi.yellow:union: shed: by_key → random (restarts front)",
        "edge union:once: removed (restarts front)",
        "application back: removed",
    ]


@pytest.mark.parametrize(
    "ddl",
    [
        "a int",
        "a: int, b string",
        "`odd name` decimal(10, 2) not null comment 'it''s'",
        "m map<string, array<int>>, s struct<x: int, y: struct<z: date>>",
        "v VARCHAR(3)",
    ],
)
def test_good_ddl(ddl: str) -> None:
    assert columns(ddl)


@pytest.mark.parametrize(
    ("ddl", "message"),
    [
        ("", "expected a column name, found the end"),
        ("a", "column a has no type"),
        ("a int,", "expected a column name, found the end"),
        ("a int; b int", "'; b int' is not understood"),
        ("a varchar", "column a needs a length, as in varchar(20)"),
        ("a decimal(x)", "column a has a bad size for decimal"),
        ("a int not", "`not` of column a is not followed by `null`"),
        ("a map<string>", "expected ',' after the key type of column a, found '>'"),
        ("a struct<>", "expected a column name, found '>'"),
        ("a int comment x", "the comment of column a is not in single quotes"),
    ],
)
def test_bad_ddl(ddl: str, message: str) -> None:
    with pytest.raises(DdlError) as raised:
        columns(ddl)
    assert str(raised.value) == message


def test_the_reference_names_every_field() -> None:
    text = (ROOT / "docs" / "topology.md").read_text(encoding="utf-8")
    for field in {*PIPELINE, *OPERATOR, *EDGE, *APPLICATION}:
        assert f"`{field}`" in text, field
    for field in OUTPUT:
        assert f"{field}: " in text, field


def test_the_example_of_the_reference_is_good() -> None:
    text = (ROOT / "docs" / "topology.md").read_text(encoding="utf-8")
    assert check_text(text.split("```yaml\n")[1].split("```")[0])[1] == []
