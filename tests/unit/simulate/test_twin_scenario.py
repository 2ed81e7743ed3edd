"""Scenario files of the twin: what they say, and every mistake where it is."""

from __future__ import annotations

from pathlib import Path

import pytest
from spillway.inject.profiles import Constant
from spillway.inject.scenario import A_RATE, ScenarioError
from spillway.inject.scenario import load as load_injected
from spillway.policy import Policy
from spillway.simulate.scenario import load
from twin_worlds import REPO, SCENARIOS

PIPELINE = """\
pipeline: words
trigger: 1s
batch_target: 3s
operators:
  split: {function: "jobs.words:split", key: word, parallelism: {start: 2, min: 1, max: 4}}
  count: {function: "jobs.words:count", kind: aggregate, query: {priority: 4, min_accuracy: 0.5}}
edges:
  - {topic: sentences, to: split}
  - {from: split, to: count, shed: by_key}
applications:
  all: {operators: [split, count], node: n1, slots: 2}
"""
GOOD = """\
name: x
duration: 60s
nodes:
  n1: {cores: 2}
topics:
  sentences: {rate: 100}
pipelines:
  - file: words.yaml
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("words.yaml").write_text(PIPELINE)


def test_a_scenario_takes_what_the_topology_says() -> None:
    scenario = load(_file(GOOD))
    split, count = scenario.world.operators
    assert (split.name, split.nodes, split.slots) == ("split", ("n1", "n1"), 2.0)
    assert (split.trigger_s, split.target_s, split.priority, split.min_accuracy) == (1.0, 3.0, None, None)
    assert (count.nodes, count.priority, count.min_accuracy) == (("n1",), 4, 0.5)
    assert [e.name for e in scenario.world.edges] == ["sentences:split", "split:count"]
    assert scenario.world.loads[0].rate == Constant(100.0)
    assert scenario.policy.qod_cycle_s == 15.0


def test_a_scenario_changes_what_it_names() -> None:
    text = GOOD.replace("  n1: {cores: 2}", "  n1: {cores: 2, background: 10}\n  n2: {cores: 1, from: 20s}")
    text += """\
    start_at: 5s
    stop_at: 50s
    operators:
      split: {nodes: [n2, n1, n1], costs: {fixed_ms: 1, driver_ms: 2, wait_ms: 3, per_arrived_us: 4, per_kept_us: 5, output: 8}}
      count: {priority: 9, min_accuracy: 0.2}
policy: {qod_cycle_s: 5, cpu_model: affine}
physics: {step_s: 0.5, down_s: 2}
"""
    scenario = load(_file(text))
    split, count = scenario.world.operators
    assert split.nodes == ("n2", "n1", "n1") and (split.from_s, split.to_s) == (5.0, 50.0)
    costs = split.costs
    found = (costs.fixed_s, costs.driver_s, costs.wait_s, costs.per_arrived_s, costs.per_kept_s, costs.output)
    assert found == pytest.approx((0.001, 0.002, 0.003, 4e-6, 5e-6, 8.0))
    assert (count.priority, count.min_accuracy) == (9, 0.2)
    assert (scenario.policy.qod_cycle_s, scenario.policy.cpu_model) == (5, "affine")
    assert (scenario.world.physics.step_s, scenario.world.physics.down_s) == (0.5, 2)
    assert [(n.background, n.from_s) for n in scenario.world.nodes] == [(10, 0.0), (0.0, 20.0)]


def test_operators_of_several_pipelines_carry_its_name() -> None:
    Path("other.yaml").write_text(PIPELINE.replace("pipeline: words", "pipeline: other").replace("sentences", "lines"))
    text = GOOD.replace("  sentences: {rate: 100}", "  sentences: {rate: 100}\n  lines: {rate: 5}")
    scenario = load(_file(text + "  - file: other.yaml\n"))
    names = [o.name for o in scenario.world.operators]
    assert names == ["words/split", "words/count", "other/split", "other/count"]
    assert "other/split:other/count" in [e.name for e in scenario.world.edges]


def _file(text: str) -> str:
    Path("f.yaml").write_text(text)
    return "f.yaml"


MISTAKES = {
    "no nodes": (GOOD.replace("nodes:\n  n1: {cores: 2}\n", ""), "f.yaml:1: nodes: is missing"),
    "typo": (GOOD.replace("duration", "duratoin"), "f.yaml:2: duratoin: unknown field (did you mean duration?)"),
    "no rate": (GOOD.replace("{rate: 100}", "{}"), f"f.yaml:6: topics.sentences.rate: is missing; allowed: {A_RATE}"),
    "a rate that is none": (GOOD.replace("rate: 100", "rate: fast"), "f.yaml:6: topics.sentences.rate: is the text 'fast'"),
    "no file": (GOOD.replace("file: words.yaml", "start_at: 1s"), "f.yaml:8: pipelines[0].file: is missing"),
    "no such file": (GOOD.replace("words.yaml", "none.yaml"), "f.yaml:8: pipelines[0].file: none.yaml: no such file"),
    "unknown node": (
        GOOD + "    operators: {split: {nodes: [n1, n7]}}\n",
        "f.yaml:9: pipelines[0].operators.split.nodes: there is no node n7; allowed: n1",
    ),
    "empty nodes": (GOOD + "    operators: {split: {nodes: []}}\n", "pipelines[0].operators.split.nodes: is empty"),
    "unknown operator": (
        GOOD + "    operators: {splitt: {}}\n",
        "pipelines[0].operators.splitt: pipeline words has no such operator (did you mean split?); allowed: split, count",
    ),
    "a floor of no query": (
        GOOD + "    operators: {split: {min_accuracy: 0.2}}\n",
        "pipelines[0].operators.split.min_accuracy: split is no query, something reads from it",
    ),
    "costs of nothing": (
        GOOD + "    operators: {split: {costs: {per_row: 1}}}\n",
        "pipelines[0].operators.split.costs.per_row: unknown field",
    ),
    "a stop before the start": (GOOD + "    start_at: 9s\n    stop_at: 5s\n", "pipelines[0].stop_at: is not after the start"),
    "a start after the end": (GOOD + "    start_at: 90s\n", "pipelines[0].start_at: is after the end of the scenario"),
    "unknown policy": (GOOD + "policy: {qod_cycles: 5}\n", "policy.qod_cycles: unknown field (did you mean qod_cycle_s?)"),
    "policy out of range": (GOOD + "policy: {qod_cycle_s: 1}\n", "policy: qod_cycle_s is 1, but must be a number from 5"),
    "unknown physics": (GOOD + "physics: {gravity: 9.81}\n", "f.yaml:9: physics.gravity: unknown field"),
    "nothing is sent": (GOOD.replace("sentences:", "words:"), "nothing is sent to topic sentences, which edge sentences:split"),
    "twice": (GOOD + "  - file: words.yaml\n", "the operator words/count is there twice"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "says"), MISTAKES.values(), ids=MISTAKES)
def test_each_mistake_is_explained_where_it_is(text: str, says: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        load(_file(text))
    assert says in str(caught.value)
    assert all("; allowed: " in line for line in str(caught.value).splitlines())


def test_a_topology_with_mistakes_is_told_with_its_lines() -> None:
    Path("words.yaml").write_text(PIPELINE.replace("to: count", "to: cuont"))
    with pytest.raises(ScenarioError, match=r"pipelines\[0\].file: words.yaml: line 9: edges\[1\].to: unknown operator 'cuont'"):
        load(_file(GOOD))


def test_a_missing_file_is_one_sentence() -> None:
    with pytest.raises(ScenarioError, match=r"^nowhere.yaml:1: no such file; allowed: "):
        load("nowhere.yaml")


def test_what_only_the_injector_needs_may_stay() -> None:
    text = GOOD.replace(
        "{rate: 100}", "{rate: 100, events: sentences, partitions: 4, garbage: 0.1, pool: 10, options: {words: 3}}"
    )
    assert load(_file(text)).world.loads[0].rate == Constant(100.0)


def test_the_rush_hour_of_the_twin_has_the_policy_of_benches_on_the_line() -> None:
    assert load(SCENARIOS / "rush_hour.yaml").policy == Policy.load(str(REPO / "policies" / "responsive.yaml"), {})


def test_the_rush_hours_of_the_twin_and_of_the_line_are_alike() -> None:
    """The same rates before and during the rush; the twin's lasts longer, because there it costs no time."""
    twin = {load.topic: load.rate for load in load(SCENARIOS / "rush_hour.yaml").world.loads}
    line = {topic.topic: topic.rate for topic in load_injected(REPO / "scenarios" / "rush_hour.yaml").topics}
    assert twin.keys() == line.keys()
    for topic, rate in line.items():
        assert twin[topic].rate(10.0) == rate.rate(10.0)
        assert max(map(twin[topic].rate, range(500))) == max(map(rate.rate, range(100)))
