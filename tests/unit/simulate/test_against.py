"""The twin against a recorded run. The recordings here are the twin's own: of the same world, and of others."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from spillway.decide.qod import decide
from spillway.model.qod import Decision, Move, Observation
from spillway.policy import Policy
from spillway.simulate.against import Comparison, against
from spillway.simulate.observation import observation
from spillway.simulate.recording import FORMAT, Recording, RecordingError, read, record
from spillway.simulate.run import play
from spillway.simulate.scenario import TwinScenario, load
from spillway.simulate.world import Costs, TwinNode
from twin_worlds import SCENARIOS, shipped, single

CYCLES = 20


@cache
def rush() -> TwinScenario:
    return load(SCENARIOS / "rush_hour.yaml")


@cache
def recorded() -> Recording:
    """The rush and a little before."""
    whole = record(shipped("rush_hour"), source="the twin itself")
    return replace(whole, cycles=whole.cycles[:CYCLES])


def compared(recording: Recording, **costs: float) -> Comparison:
    """By a twin whose heavy query has other costs."""
    world = rush().world
    operators = tuple(
        replace(o, costs=Costs(**{**{n: getattr(o.costs, n) for n in Costs.__slots__}, **costs})) if o.name == "heavy" else o
        for o in world.operators
    )
    return against(replace(world, operators=operators), rush().policy, recording, seed=rush().seed)


def heavy(comparison: Comparison) -> Any:
    return next(o for o in comparison.operators if o.operator == "heavy")


def test_against_itself_it_is_off_by_little_more_than_chance() -> None:
    """Arrivals are known by the cycle, so where they change within one it is a little off."""
    found = heavy(compared(recorded()))
    assert found.accuracy.mean < 0.05 and found.cpu.mean < 3.0 and found.lag_s.mean < 0.7
    assert found.accuracy.cycles == found.cpu.cycles == len(recorded().cycles)
    assert found.cpu.recorded == pytest.approx(60.0, rel=0.3)


def test_a_machine_that_is_slower_than_the_twin_shows_in_lag_and_cpu() -> None:
    """Recorded where a row costs 3.8 ms; the twin believes in 2.9."""
    world = rush().world
    slow = replace(
        world,
        operators=tuple(
            replace(o, costs=replace(o.costs, per_kept_s=3.8e-3)) if o.name == "heavy" else o for o in world.operators
        ),
    )
    run = play(slow, rush().policy, duration_s=270.0, seed=9)
    recording = record(run, source="a slower machine")
    wrong, right = heavy(compared(recording)), heavy(compared(recording, per_kept_s=3.8e-3))
    assert wrong.cpu.bias < -5.0, "the twin uses less"
    assert wrong.lag_s.bias < 0.0, "and is less behind"
    assert abs(right.cpu.bias) < 2.0
    assert right.lag_s.mean < wrong.lag_s.mean
    assert right.accuracy.mean < 0.05, "keeps are those of the recording, but a batch may fall into the next window"


def test_what_moved_moves_again() -> None:
    """From a node that carries half of its events to one that carries them all, after five cycles."""
    world = single(700.0)
    world = replace(world, nodes=(TwinNode(name="n1", cores=0.4), TwinNode(name="n2", cores=1.0)))
    cycles: list[int] = []

    def controller(observation: Observation, policy: Policy) -> Decision:
        cycles.append(1)
        move = Move(operator="query", instance=0, source="n1", target="n2", reason="to see it move")
        kept = decide(replace(observation, nodes=tuple(replace(n, cores=9.0) for n in observation.nodes)), policy)
        return replace(kept, edges=(), moves=(move,) if len(cycles) == 5 else ())

    recording = record(play(world, Policy(), duration_s=240.0, seed=1, controller=controller), source="a move")
    assert [c.operators["query"].nodes[0] for c in recording.cycles] == ["n1"] * 5 + ["n2"] * 11
    untold = tuple(replace(c, operators={"query": replace(c.operators["query"], nodes=())}) for c in recording.cycles)
    moved, stayed = (against(world, Policy(), r, seed=1).operators[0] for r in (recording, replace(recording, cycles=untold)))
    assert moved.cpu is not None and stayed.cpu is not None and moved.lag_s is not None and stayed.lag_s is not None
    assert moved.cpu.mean < 5.0 < 20.0 < stayed.cpu.mean
    assert moved.lag_s.mean < 2.0 < 20.0 < stayed.lag_s.mean


def test_cycles_that_do_not_tell_are_left_out() -> None:
    """Not read as zero: neither compared, nor taken for a topic that fell silent."""
    cycles = list(recorded().cycles)
    blank = replace(
        cycles[12],
        topics=dict.fromkeys(cycles[12].topics),
        operators={n: replace(o, cpu=None, accuracy=None) for n, o in cycles[12].operators.items()},
        edges={n: replace(e, lag=None, keep=None) for n, e in cycles[12].edges.items()},
    )
    found = heavy(compared(replace(recorded(), cycles=(*cycles[:12], blank, *cycles[13:]))))
    assert found.cpu.cycles == found.accuracy.cycles == found.lag_s.cycles == len(cycles) - 1
    assert found.cpu.mean < 3.0


def test_a_recording_survives_its_file(tmp_path: Any) -> None:
    file = tmp_path / "run.json"
    file.write_text(recorded().to_json())
    assert read(file) == recorded()


def test_a_run_of_the_line_is_shipped_and_the_twin_can_be_held_against_it() -> None:
    """As the bench of the twin does."""
    recording = read(SCENARIOS / "recorded" / "rush_hour.json")
    found = against(rush().world, rush().policy, recording, seed=rush().seed)
    assert {o.operator for o in found.operators} == {"union", "light", "heavy"}
    assert found.cycles >= 8 and heavy(found).lag_s.cycles >= 8, "of the eleven that a rush hour on the line has"


def stored(*, prefix: str = "taxi/", leave_out: int | None = None) -> str:
    """The observations of the run as the live cycle stores them: names with their pipeline, one object per line."""
    run = shipped("rush_hour")
    lines = []
    for number, window in enumerate(c.window for c in run.cycles[:CYCLES]):
        seen = observation(run.world, window, np.zeros(len(window.owner), bool))
        named = replace(
            seen,
            now=f"2026-01-01T00:{15 * (number + 1) // 60:02d}:{15 * (number + 1) % 60:02d}+00:00",
            operators=tuple(replace(o, name=prefix + o.name) for o in seen.operators),
            edges=tuple(
                replace(e, producer=e.producer and prefix + e.producer, consumer=prefix + e.consumer) for e in seen.edges
            ),
        )
        if number != leave_out:
            lines.append(named.to_json())
    return "\n".join(lines) + "\n"


def test_what_the_live_cycle_stored_is_a_recording(tmp_path: Any) -> None:
    file = tmp_path / "run.jsonl"
    file.write_text(stored())
    found = read(file)
    assert found.source == "run.jsonl" and found.cycle_s == 15.0
    for mine, theirs in zip(recorded().cycles, found.cycles, strict=True):
        assert theirs.t_s == pytest.approx(mine.t_s) and theirs.topics == pytest.approx(mine.topics)
        assert theirs.edges == mine.edges and theirs.nodes == pytest.approx(mine.nodes)
        for name, operator in mine.operators.items():
            assert theirs.operators[name].nodes == operator.nodes
            for field in ("in_rate", "cpu", "accuracy"):
                assert getattr(theirs.operators[name], field) == pytest.approx(getattr(operator, field), rel=1e-6)


def test_a_cycle_that_was_not_stored_is_not_known(tmp_path: Any) -> None:
    file = tmp_path / "run.jsonl"
    file.write_text(stored(leave_out=7))
    found = read(file)
    assert len(found.cycles) == len(recorded().cycles) and found.cycles[7].operators == {}
    assert heavy(compared(found)).cpu.cycles == len(found.cycles) - 1


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda text: text.replace('"cores"', '"cors"'), r"line 1: nodes\[0\].cores is missing"),
        (lambda text: re.sub(r',"now":"[^"]*"', "", text), "line 1: now is missing or no time"),
        (lambda text: "\n".join(reversed(text.splitlines())), "the observations are not in order of time"),
        (lambda text: text.replace('"cycle_s":15.0,', ""), "line 1: cycle_s is missing"),
        (lambda text: text.replace("+00:00", "", 1), "line 2: of now here and in line 1 only one has a time zone"),
    ],
)
def test_stored_observations_that_cannot_be_used_are_refused(change: Any, says: str, tmp_path: Any) -> None:
    file = tmp_path / "run.jsonl"
    file.write_text(change(stored()))
    with pytest.raises(RecordingError, match=says):
        read(file)


def changed(**changes: Any) -> str:
    return json.dumps({**json.loads(recorded().to_json()), **changes})


def first(**changes: Any) -> str:
    raw = json.loads(recorded().to_json())
    raw["cycles"][0] |= changes
    return json.dumps(raw)


MISTAKES = {
    "no json": ("{", "is no recording: line 1 is not valid JSON"),
    "something else": ("[]", f'it does not begin with "format": "{FORMAT}"'),
    "another version": (changed(format="spillway-recording/9"), "it does not begin with"),
    "no cycles": (changed(cycles=[]), "cycles is empty or missing"),
    "no length": (changed(cycle_s=0), "cycle_s is missing or 0"),
    "another length": (changed(cycle_s=5.0), r"cycles\[0\].t_s is 15, but cycles of 5 s end at 5"),
    "negative": (first(topics={"taxi.yellow": -1}), r"topics.taxi.yellow is -1, but must be a number from 0 to 1e\+15 or null"),
    "no number": (first(nodes={"n1": "all"}), r"cycles\[0\].nodes.n1 is the text 'all', but must be"),
    "endless": (first(nodes={"n1": 10**400}), r"cycles\[0\].nodes.n1 is a number of too many digits, but must be"),
    "not to be read": ('{"format": "' + FORMAT + '", "cycle_s": 1' + "0" * 5_000 + "}", "it has a number of too many digits"),
    "deep": (changed(cycles="CYCLES").replace('"CYCLES"', "[" * 100_000 + "]" * 100_000), "it is nested too deeply"),
    "keep above one": (first(edges={"union:heavy": {"keep": 1.5}}), "keep is 1.5, but must be a number from 0 to 1 or null"),
    "unknown field": (first(operators={"heavy": {"rate": 1}}), r"operators.heavy has the unknown field rate: known are in_rate"),
    "places": (first(operators={"heavy": {"nodes": "n1"}}), "nodes must be a list of names"),
    "no object": (first(edges=[]), r"cycles\[0\].edges must be an object"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "says"), MISTAKES.values(), ids=MISTAKES)
def test_a_file_that_is_no_recording_is_refused_with_the_reason(text: str, says: str, tmp_path: Any) -> None:
    file = tmp_path / "run.json"
    file.write_text(text)
    with pytest.raises(RecordingError, match=says) as caught:
        read(file)
    assert str(file) in str(caught.value)


def test_a_file_that_is_not_there_is_one_sentence() -> None:
    with pytest.raises(RecordingError, match=r"^nowhere.json cannot be read: No such file"):
        read("nowhere.json")


@pytest.mark.parametrize(
    ("what", "changes"),
    [
        ("topic strange", {"topics": {"strange": 1.0}}),
        ("edge strange", {"edges": {"strange": None}}),
        ("operator strange", {"operators": {"strange": None}}),
        ("node strange", {"nodes": {"strange": 1.0}}),
    ],
)
def test_a_recording_of_something_else_is_refused(what: str, changes: dict[str, Any]) -> None:
    known = recorded().cycles[0]
    filled = {
        name: {k: next(iter(getattr(known, name).values())) if v is None else v for k, v in value.items()}
        for name, value in changes.items()
    }
    cycles = (replace(known, **filled), *recorded().cycles[1:])
    with pytest.raises(RecordingError, match=rf"cycles\[0\] has the {what}, which the scenario does not have"):
        compared(replace(recorded(), cycles=cycles))


def test_arrivals_have_to_be_known() -> None:
    cycles = tuple(replace(c, topics={"taxi.yellow": 1.0}) for c in recorded().cycles)
    with pytest.raises(RecordingError, match=r"the rate of topic taxi.green was not recorded"):
        compared(replace(recorded(), cycles=cycles))
