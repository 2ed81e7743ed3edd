"""What the benches that rescale make of what they have measured."""

from __future__ import annotations

import threading
import time
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.benches import last_line

GOOD = {"events": 10, "keys": 5, "records": 9, "lost": 0, "wrong": 0, "unknown": 0, "doubled": 0}
PAUSES = {
    "stop_and_start": 30.0, "restart/anew": 3.0, "restart/executors": 3.0, "restart/buckets": 25.0, "executors/executors": 5.0,
    "handover/node": 2.0, "handover/executors": 2.0, "shadow/buckets": 5.0,
}  # fmt: skip


def samples(bench: Any, pauses: dict[str, float], beside: float = 2.0, **change: Any) -> list[Any]:
    def made(way: str, pause: float) -> Any:
        given = {"done": True, "steady_s": 1.0, "pause_s": pause, "lag_back_s": 3.0, "rows": 5, "equal": True}
        launches = way.startswith(("handover", "shadow"))
        given |= {"beside_s": beside if launches else None, "followed": True if launches else None}
        given["rewritten"] = launches or way.endswith("buckets")
        return bench("rescale").Sample(way=way, **{**given, **change})

    return [made(way, pause + off) for way, pause in pauses.items() for off in (-0.5, 0.0, 0.5)]


def missed(goals: Any, path: str = "") -> list[str]:
    found = []
    for name, met in goals.items():
        found += missed(met, f"{path}{name} ") if isinstance(met, dict) else [] if met else [f"{path}{name}"]
    return found


def results(bench: Any, small: dict[str, float], large: dict[str, float], **given: Any) -> dict[str, Any]:
    summed_up = bench("rescale").summed_up
    counts = {**GOOD, **given.pop("counts", {})}
    return {
        "wordcount": {
            keys: summed_up(samples(bench, {**PAUSES, **pauses}, **given), counts, keys)
            for keys, pauses in ((100_000, small), (1_000_000, large))
        }
    }


@pytest.mark.parametrize(
    ("small", "large", "goal"),
    [
        ({}, {}, None),
        ({"restart/anew": 3.01}, {}, "wordcount 100000 restart/anew_at_most_2_steady_and_1_s"),
        ({}, {"restart/executors": 3.01}, "wordcount 1000000 restart/executors_at_most_2_steady_and_1_s"),
        ({"restart/buckets": 90.0, "executors/executors": 90.0}, {}, None),
        ({"handover/node": 2.01}, {}, "wordcount 100000 handover/node_at_most_2_s"),
        ({"handover/executors": 2.01}, {}, "wordcount 100000 handover/executors_at_most_2_s"),
        ({}, {"handover/node": 2.9}, None),
        ({}, {"handover/node": 3.01}, "wordcount 1000000 handover/node_at_most_3_s"),
        ({"stop_and_start": 19.0, "handover/executors": 1.8}, {}, "wordcount 100000 handover/node_at_most_0.1_of_stop_and_start"),
        ({}, {"stop_and_start": 19.0}, None),
        ({}, {"shadow/buckets": 5.01}, "wordcount 1000000 shadow_at_most_5_s"),
        ({"shadow/buckets": 3.0}, {"shadow/buckets": 4.6}, "wordcount shadow_at_most_1.5_times_with_more_keys"),
    ],
)
def test_pauses_are_held_to_their_goals_by_their_median(
    bench: Any, capsys: pytest.CaptureFixture[str], small: dict[str, float], large: dict[str, float], goal: str | None
) -> None:
    assert bench("rescale").conclude(results(bench, small, large)) == (0 if goal is None else 1)
    assert missed(last_line(capsys)["goals"]) == ([goal] if goal else [])


def test_what_rehearses_must_not_starve_what_runs(bench: Any) -> None:
    goals = bench("rescale").goals(results(bench, {}, {}, beside=2.01))
    assert len(missed(goals)) == 6 and all("_beside_at_most_2_steady" in goal for goal in missed(goals))


@pytest.mark.parametrize(
    ("change", "goal"),
    [
        ({"counts": {"lost": 1}}, "counts_are_equal"),
        ({"counts": {"doubled": 1}}, "counts_are_equal"),
        ({"counts": {"wrong": 1}}, "counts_are_equal"),
        ({"equal": False}, "state_is_equal"),
        ({"equal": None}, "state_is_equal"),
        ({"followed": False}, "successors_follow"),
        ({"lag_back_s": None}, "lag_is_back"),
        (
            {"done": False, "pause_s": None, "beside_s": None, "lag_back_s": None, "detail": "it died", "followed": None},
            "every_plan_is_done",
        ),
    ],
)
def test_nothing_may_be_lost_on_the_way(bench: Any, change: dict[str, Any], goal: str) -> None:
    assert set(missed(bench("rescale").goals(results(bench, {}, {}, **change)))) == {
        f"wordcount {keys} {goal}" for keys in (100_000, 1_000_000)
    }


def test_what_was_not_measured_has_no_goal(bench: Any) -> None:
    rescale = bench("rescale")
    only = [s for s in samples(bench, PAUSES) if s.way == "restart/anew"]
    found = rescale.summed_up(only, GOOD, 20_000)
    assert found["ways"]["restart/anew"]["to_stop_and_start"] is None
    assert list(rescale.goals({"ads": {20_000: found}})["ads"]["20000"]) == [
        "every_plan_is_done", "counts_are_equal", "lag_is_back", "restart/anew_at_most_2_steady_and_1_s",
    ]  # fmt: skip


def test_a_gap_lies_between_commits_that_got_further(bench: Any) -> None:
    shared = bench("_rescale")
    commits = [shared.Commit(at=at, end=end) for at, end in ((9.0, 80), (1.0, 10), (2.0, 20), (2.5, 20), (3.0, 15), (6.0, 70))]
    assert [g.length_s for g in shared.gaps(commits)] == [1.0, 4.0, 3.0], "in the order of time, repeated rows are not new"
    found = shared.gaps(commits)
    assert shared.longest(found, 6.5, 7.0) == 3.0 and shared.longest(found, 9.5, 10.0) is None
    assert shared.longest(found, 5.0, 5.5) == 4.0, "a gap counts that began before the change"


def test_lag_is_back_when_it_was_greatest_before(bench: Any) -> None:
    lag_back = bench("_rescale").lag_back
    assert lag_back([(1.0, 2), (2.0, 3), (3.0, 500), (4.0, 90), (5.0, 8)], normal=10, since=1.5) == 3.5
    assert lag_back([(2.0, 3), (3.0, 500)], normal=10, since=1.5) is None
    assert lag_back([], normal=10, since=1.5) is None


def test_commits_are_seen_over_all_checkpoints_of_an_operator(bench: Any, tmp_path: Path) -> None:
    watch = bench("_rescale").Watch(tmp_path, "127.0.0.1:1", "t")
    for checkpoint, batch, end in (("0", 4, 10), ("0", 5, 30), ("1", 0, 30), ("1", 1, 45), ("2.shadow", 0, 99)):
        for log, text in (("offsets", f'v1\n{{}}\n{{"t":{{"0":{end},"1":{end}}}}}'), ("commits", "v1\n{}")):
            (tmp_path / checkpoint / log).mkdir(parents=True, exist_ok=True)
            (tmp_path / checkpoint / log / str(batch)).write_text(text)
    (tmp_path / "0" / "commits" / ".5.crc").write_text("")
    watch.look()
    assert sorted(c.end for c in watch.commits) == [20, 60, 60, 90] and watch.furthest == 90
    assert len(watch.gaps()) == 2 and len(watch.gaps(checkpoint=0)) == 1, "what follows on a checkpoint of its own is left out"


@pytest.mark.parametrize("name", ["wordcount", "ads"])
def test_a_workload_fills_its_state_and_then_only_counts_on(bench: Any, name: str) -> None:
    from spillway.topology import check_text

    workload, keys = bench("_counting").WORKLOADS[name], 3_001
    assert check_text(workload.topology(keys))[1] == []
    first = workload.first(keys)
    filled = [k for n in range(first) for k in workload.keys_of(n, keys)]
    assert sorted(filled) == list(range(keys)), "each key once"
    later = {k for n in range(first, first + 20_000) for k in workload.keys_of(n, keys)}
    assert later == set(range(keys)) and len({workload.key(k) for k in later}) == keys
    assert len({workload.make(n, keys) for n in range(100)}) == 100 and workload.make(7, keys) == workload.make(7, keys)


def cell(
    bench: Any, outcome: str = "done", step: str = "verify", as_said: bool = True, went_on: bool = False, **verdict: int
) -> Any:
    faults = bench("rescale_faults")
    return faults.Cell(
        kind="restart", step=step, fault="driver", outcome=outcome, as_said=as_said, went_on=went_on, took_s=1.0,
        verdict=faults.Verdict(**{"events": 5, "lost": 0, "doubled": 0, "wrong": 0, **verdict}),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("change", "goal"),
    [
        ({}, None),
        ({"outcome": "rolled_back"}, None),
        ({"outcome": "failed", "step": "validate"}, None),
        ({"outcome": "failed"}, "every_plan_ends_by_itself"),
        ({"outcome": "failed", "step": "validate", "went_on": True}, "every_plan_ends_by_itself"),
        ({"outcome": "stuck"}, "every_plan_ends_by_itself"),
        ({"outcome": "not reached"}, "every_plan_ends_by_itself"),
        ({"as_said": False}, "what_runs_is_as_the_outcome_says"),
        ({"lost": 1}, "nothing_lost_or_doubled"),
        ({"doubled": 1}, "nothing_lost_or_doubled"),
        ({"wrong": 1}, "nothing_lost_or_doubled"),
    ],
)
def test_the_table_of_faults(bench: Any, capsys: pytest.CaptureFixture[str], change: dict[str, Any], goal: str | None) -> None:
    found = [cell(bench), cell(bench, **change)]
    assert bench("rescale_faults").conclude(found) == (0 if goal is None else 1)
    last = last_line(capsys)
    assert missed(last["goals"]) == ([goal] if goal else [])
    assert (last["good"], last["of"]) == (1 if goal else 2, 2)


def test_every_step_of_every_kind_has_its_faults(bench: Any) -> None:
    faults = bench("rescale_faults")
    every = faults.cells(["restart", "executors", "handover", "shadow"], None, faults.FAULTS)
    named = {(kind, step) for kind, step, _ in every}
    assert named == {(kind, step) for kind in ("restart", "executors", "handover", "shadow") for step in faults.steps(kind)}
    for kind, step in named:
        of = {fault for k, s, fault in every if (k, s) == (kind, step)}
        assert of >= {"driver", "executor", "scheduler", "postgres", "kafka"}
        assert ("successor" in of) == (kind in ("handover", "shadow") and step in faults.REHEARSED)


def test_one_plan_bears_what_leaves_it_its_drivers_and_no_cell_is_left_out(bench: Any) -> None:
    faults = bench("rescale_faults")
    every = faults.cells(["restart", "shadow"], None, faults.FAULTS)
    rows = faults.rows(every)
    assert sorted((kind, step, fault) for kind, row, fault in rows for step in row) == sorted(every)
    for kind, row, fault in rows:
        assert row == (faults.steps(kind) if fault in faults.IN_A_ROW else row[:1])


def test_a_plan_is_held_at_one_step_after_the_other(bench: Any, tmp_path: Path) -> None:
    """Between the process that carries plans out and whoever strikes it, by files."""
    module = bench("_carrier")
    carrier, carry = module.Carrier.__new__(module.Carrier), module._Carry.__new__(module._Carry)
    carrier.folder = carry._folder = tmp_path

    def passes(step: str) -> threading.Thread:
        """One pass of the carrier, with a plan at this step."""
        plan = SimpleNamespace(at=SimpleNamespace(step=step), state="running")
        thread = threading.Thread(target=carry._hold, args=([plan],), daemon=True)
        thread.start()
        return thread

    def held() -> bool:
        deadline = time.monotonic() + 5.0
        while not carrier.held and time.monotonic() < deadline:
            time.sleep(0.005)
        return carrier.held

    carrier.hold_at("a")
    first = passes("a")
    assert held() and first.is_alive()
    carrier.release("b")
    first.join(5.0)
    assert not first.is_alive() and not carrier.held, "it goes on, and is held no more"
    passes("a").join(5.0)
    assert not carrier.held, "at another step it is not held"
    second = passes("b")
    assert held()
    carrier.release()
    second.join(5.0)
    assert not second.is_alive()
    passes("b").join(5.0)


class Plans:
    """Whoever carries plans out, and a line: of each plan is known at which step a fault ends it, and how."""

    def __init__(self, course: list[str], ends: dict[str, str]) -> None:
        self.course, self.ends, self.at, self.state, self.hold = course, ends, 0, "running", ""
        self.struck: list[str] = []

    def now_has(self) -> dict[str, Any]:
        return {"executors": 2, "buckets": 4, "node": "n1", "generation": 1}

    def ask(self, kind: str, **wanted: Any) -> Any:
        self.at, self.state = 0, "running"
        self._go_on()
        return self.plan(1)

    def plan(self, number: int) -> Any:
        return SimpleNamespace(id=number, open=self.state == "running", state=self.state, detail="", step=self.course[self.at])

    def followed(self, number: int, limit_s: float) -> Any:
        assert self.state != "running"
        return self.plan(number)

    def hold_at(self, step: str) -> None:
        self.hold = step

    @property
    def held(self) -> bool:
        return self.state == "running" and self.course[self.at] == self.hold

    def release(self, then: str | None = None) -> None:
        self.hold = then or ""
        self._go_on()

    def _go_on(self) -> None:
        while self.state == "running" and not self.held:
            self.at += 1
            if self.at == len(self.course):
                self.at, self.state = 0, "done"

    def strike(self, fault: str, plan: Any, then: str | None) -> str:
        self.struck.append(plan.step)
        if plan.step in self.ends:
            self.state = self.ends[plan.step]
        self.release(then)
        return fault


@pytest.mark.parametrize(
    ("steps", "ends", "found"),
    [
        (["a", "b", "c"], {}, [("a", "went on, done"), ("b", "went on, done"), ("c", "done")]),
        (["a", "b", "c"], {"b": "rolled_back"}, [("a", "went on, rolled_back"), ("b", "rolled_back")]),
        (["b"], {}, [("b", "done")]),
        (["x", "b"], {}, [("x", "not reached")]),
    ],
)
def test_a_plan_is_struck_at_step_after_step_until_it_ends(
    bench: Any, monkeypatch: pytest.MonkeyPatch, steps: list[str], ends: dict[str, str], found: list[tuple[str, str]]
) -> None:
    faults, plans = bench("rescale_faults"), Plans(["a", "b", "c"], ends)
    under = faults.Bed.__new__(faults.Bed)
    under.line = under._carrier = plans
    under.feed = SimpleNamespace(pause=lambda: None, resume=lambda: None)
    under.ledger = SimpleNamespace(settled=lambda _: faults.Verdict(events=1, lost=0, doubled=0, wrong=0))
    monkeypatch.setattr(under, "_strike", plans.strike)
    monkeypatch.setattr(under, "runs_as", lambda *_: True)
    assert [(c.step, c.came_to) for c in under.struck("restart", steps, "kafka")] == found
    assert plans.struck == [step for step, outcome in found if outcome != "not reached"]


def test_no_table_without_cells_is_good(bench: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench("rescale_faults").conclude([]) == 1
    assert last_line(capsys)["of"] == 0


LINEAGE = [("g.in", 0, n, {"n": n, "key": f"k{n % 2}"}) for n in range(4)]
HANDED = [("g.pass.tally", 0, n, {"lineage": f"g.in-0-{n}"}) for n in range(4)]
STATES = [("g.tally.out", 0, n, {"key": f"k{n % 2}", "rows": 1 + n // 2, "total": (0, 1, 2, 4)[n]}) for n in range(4)]


@pytest.mark.parametrize(
    ("came", "found"),
    [
        ([*HANDED, *STATES], (0, 0, 0)),
        ([*HANDED[1:], *STATES], (1, 0, 0)),
        ([*HANDED, HANDED[0], *STATES], (0, 1, 0)),
        ([*HANDED, *STATES, STATES[0]], (0, 1, 0)),
        ([*HANDED, *STATES[:3]], (0, 0, 1)),
        ([*HANDED, *STATES[:3], (*STATES[3][:3], {"key": "k1", "rows": 2, "total": 5})], (0, 0, 1)),
        ([*HANDED, *STATES, ("g.tally.out", 0, 9, {"key": "k9", "rows": 1, "total": 1})], (0, 0, 1)),
    ],
)
def test_a_ledger_tells_what_was_lost_doubled_or_miscounted(
    bench: Any, monkeypatch: pytest.MonkeyPatch, came: list[Any], found: tuple[int, int, int]
) -> None:
    faults = bench("rescale_faults")
    ledger = faults.Ledger("127.0.0.1:1", "g.in", "g.pass.tally", "g.tally.out")
    for part in ([*LINEAGE[:2]], [*LINEAGE[2:], *came]):  # it reads on from where it stopped
        monkeypatch.setattr(ledger, "_records", lambda part=part: iter(part))
        verdict = ledger.read()
    assert (verdict.lost, verdict.doubled, verdict.wrong) == found and verdict.exact == (found == (0, 0, 0))


# ---- what is gone on with ----


def test_what_was_measured_kind_by_kind_is_judged_together(bench: Any, tmp_path: Path) -> None:
    rescale, common = bench("rescale"), bench("_common")
    file = tmp_path / "rescale.jsonl"
    for kinds in (("restart",), ("handover", "shadow")):
        pauses = {way: s for way, s in PAUSES.items() if way == "stop_and_start" or way.startswith(kinds)}
        for keys in (100_000, 1_000_000):
            result = rescale.summed_up(samples(bench, pauses), {**GOOD, "lost": int(kinds == ("restart",))}, keys)
            common.Record(file).add({"pipeline": "wordcount", "keys": keys, "kinds": kinds, "result": result})
    record = common.Record(file)
    found = rescale.together(record.lines)
    assert set(found["wordcount"][100_000]["ways"]) == set(PAUSES) - {"executors/executors"}
    assert found["wordcount"][100_000]["counts"] == {n: 2 * v for n, v in GOOD.items()} | {"lost": 1}
    assert missed(rescale.goals(found)) == ["wordcount 100000 counts_are_equal", "wordcount 1000000 counts_are_equal"]
    assert len(record.commits()) == 1


def test_only_what_was_good_is_not_struck_again(bench: Any, tmp_path: Path) -> None:
    faults, common = bench("rescale_faults"), bench("_common")
    exact = faults.Verdict(events=9, lost=0, doubled=0, wrong=0)
    kept = faults.Cell(kind="restart", step="order", fault="kafka", outcome="done", as_said=True, verdict=exact, took_s=3.0)
    lost = replace(kept, step="stopped", verdict=replace(exact, lost=1))
    record = common.Record(tmp_path / "faults.jsonl")
    for cell in (kept, lost):
        record.add(asdict(cell))
    again = common.Record(tmp_path / "faults.jsonl")
    assert faults.recorded(again.lines, faults.cells(["restart"], None, ["kafka"])) == [kept]
    assert faults.recorded(again.lines, faults.cells(["restart"], None, ["driver"])) == []
    assert [f["step"] for f in faults.failures(again.lines, faults.cells(["restart"], None, ["kafka"]))] == ["stopped"]
    assert faults.failures(again.lines, faults.cells(["restart"], None, ["driver"])) == []


def test_a_cell_that_failed_is_not_forgotten_when_it_is_struck_again(bench: Any, capsys: pytest.CaptureFixture[str]) -> None:
    faults = bench("rescale_faults")
    exact = faults.Verdict(events=9, lost=0, doubled=0, wrong=0)
    cell = faults.Cell(kind="restart", step="order", fault="kafka", outcome="done", as_said=True, verdict=exact, took_s=3.0)
    failed = {"kind": "restart", "step": "order", "fault": "kafka", "outcome": "stuck", "detail": "", "commit": "a1"}
    assert faults.conclude([cell], 0, ["a1"], [failed]) == 1
    assert last_line(capsys)["failed_before"] == [failed]
    assert faults.conclude([cell], 0, ["a1", "b2"], [failed]) == 0, "it was mended since"


def test_a_table_with_cells_left_out_misses_its_goal(bench: Any, capsys: pytest.CaptureFixture[str]) -> None:
    faults = bench("rescale_faults")
    exact = faults.Verdict(events=9, lost=0, doubled=0, wrong=0)
    cell = faults.Cell(kind="restart", step="order", fault="kafka", outcome="done", as_said=True, verdict=exact, took_s=3.0)
    assert (faults.conclude([cell]), faults.conclude([cell], 1)) == (0, 1)
    assert last_line(capsys)["goals"]["every_cell_was_struck"] is False
