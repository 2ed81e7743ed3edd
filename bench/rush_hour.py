"""The taxi pipeline through a rush at twice what its heavy query can carry, with the controller and without it, in one run.

All embedded services and Airflow run, as in `make demo`. First floods tell what the heavy query carries once it is warm, and
the scenario is scaled to twice of that. Then it is played with the DAG spillway_qod deciding every cycle (mode `advise` for the
first cycle, which still sees what was before, `apply` from then on), and once more in mode `off`, to the end of the rush: it
leaves a backlog behind, so that comes second.

    make bench NAME=rush_hour
    make bench NAME=rush_hour ARGS="--overload 2.5 --set cpu_model=affine"
    make bench NAME=rush_hour ARGS=--models

Lag is what the planning of a batch left behind in Kafka, in seconds of what arrives at that edge at that moment; the limit of 2 s
under control is judged by it. Beside it stands `waiting`: Kafka's own lag, which has the rows of the batch as well until it
commits. A batch under overload takes what came in while the one before ran, and that may be `batch_target` (4 s) long, so no
controller brings `waiting` under 2 s. The growth without control is judged by `waiting`: the first batches of an overload
still take everything and leave nothing, while they become longer and longer.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Any

from _common import REPO, exit_code, fail, finish, say
from _line import Strangers, change_policy, on_airflow
from _twin import errors
from spillway.act.cycle import summary
from spillway.demo import course
from spillway.demo.control import CYCLES_LAGGING, CYCLES_TO_RECOVER, LAG_LIMIT_S, controlled
from spillway.demo.course import Batch, Rush, Set
from spillway.demo.figure import samples
from spillway.demo.flood import saturate
from spillway.demo.hand import Hand
from spillway.demo.line import Line, LineFailed, Playing
from spillway.inject.report import Report
from spillway.inject.scenario import Scenario, load
from spillway.model.samples import Mark
from spillway.model.topology import Pipeline
from spillway.plot import draw
from spillway.policy import Policy
from spillway.simulate.recording import from_observations

HEAVY = "heavy"
WITH, WITHOUT = "with control", "without"
MODELS = ("proportional", "affine")


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    scenario: Scenario
    batches: list[Batch]
    settings: list[Set]
    decisions: list[dict[str, Any]]
    windows: list[float]
    """Ends of the windows on which there has to be a decision; none without control."""
    held: bool
    """Whether the injector kept the rate."""
    seen: list[str]
    """What the cycles saw, as they stored it."""

    @property
    def decided(self) -> int:
        """Of those windows, how many there is a decision on."""
        return len({d["interval_end"].timestamp() for d in self.decisions}.intersection(self.windows))


def play(line: Line, scenario: Scenario, until_s: float, *, cycle_s: float | None = None) -> Played:
    """To its end or to that moment, under control once a cycle was played (without `cycle_s`, never).

    It is not told to stop, because a player that is does not say what it gave up."""
    line.mode("off" if cycle_s is None else "advise")
    since = line.now()
    playing = line.play(replace(scenario, duration_s=min(until_s, scenario.duration_s)))
    _watch(line, playing, inf if cycle_s is None else cycle_s)
    report = playing.ended()
    for problem in report.problems:
        say(problem)
    decisions = line.rows("demo_decisions", since=since)
    for decision in decisions:
        say(in_words(decision))
    return Played(
        scenario=scenario,
        batches=[b for b in line.course(since, playing) if b.began_s <= until_s],
        settings=line.settings(since, playing),
        windows=[] if cycle_s is None else playing.windows(cycle_s, line.now()),
        decisions=decisions,
        held=held(report),
        seen=[json.dumps(r["body"]) for r in line.rows("demo_observations", since=since)],
    )


def in_words(decision: dict[str, Any]) -> str:
    """What was decided on a window, and why on every edge that is shed."""
    told = f"window to {decision['interval_end']:%H:%M:%S} {decision['status']}"
    if not (output := decision["output"]):
        return f"{told}: {decision['reason']}"
    shed = "".join(f"; {e['name']} {e['keep']:.3g}, {e['reason']}" for e in output["edges"] if e["keep"] < 1.0)
    return f"{told}: {summary(output)}{shed}"


def held(report: Report) -> bool:
    return not report.problems and not any(t.given_up for t in report.topics)


def _watch(line: Line, playing: Playing, control_from_s: float) -> None:
    while playing.thread.is_alive():
        playing.thread.join(5.0)
        line.hand_over(playing, control_from_s)
        say(f"{playing.elapsed_s:4.0f} s, in {playing.rate:>6,.0f}/s   {line.look()}")


def under_control(run: Played, pipeline: Pipeline, within: Rush, cycle_s: float) -> dict[str, Any]:
    """What the controller made of the rush."""
    found = controlled(pipeline, run.scenario, within, run.batches, run.settings, cycle_s)
    return {
        "lag_controlled_s": _rounded(found.lag_after_s),
        "lag_peak_s": _rounded(found.lag_peak_s),
        "waiting_controlled_s": _rounded(found.waiting_after_s),
        "lagging_s": _rounded(found.lagging_s),
        "lagging_cycles": _whole(found.lagging_cycles),
        "floors_kept": found.floors_kept,
        "least_accuracy": {q: round(a, 3) for q, a in found.least.items()},
        "first_shed_after_s": {q: round(t, 1) for q, t in found.first_shed_s.items()},
        "in_order": found.in_order,
        "recovered_s": _rounded(found.whole_again_s),
        "recovered_cycles": _whole(found.recovered_cycles),
        "windows": len(run.windows),
        "decided": run.decided,
        "refused": sum(d["status"] in ("refused", "failed") for d in run.decisions),
        "shed_share": _rounded(1.0 - found.shed_kept / found.shed_read if found.shed_read else 0.0),
        "shed_rows": found.shed_read - found.shed_kept,
        "batches_until_in_force": found.batches_until,
    }


def uncontrolled(run: Played, pipeline: Pipeline, within: Rush, cycle_s: float) -> dict[str, Any]:
    """Whether the heavy query was more and more behind, and how far in the last cycle of the rush."""
    edges = [e.name for e in pipeline.inputs(HEAVY)]
    found: dict[str, Any] = {}
    for name, measure in (("lag", course.lags), ("waiting", course.waiting)):
        seen = measure(pipeline, run.batches, run.scenario)
        own = {edge: seen[edge] for edge in edges}
        found[f"{name}_uncontrolled_s"] = _rounded(course.worst(own, within.ends_s - cycle_s, within.ends_s))
        found[f"{name}_grows"] = all(course.grows(points, within, cycle_s) for points in own.values())
    return found


def twin_error(run: Played, record: Path | None) -> dict[str, Any] | None:
    """How far the twin of the rush hour is off when it is given what was sent and kept; None when no cycle saw anything."""
    if not run.seen:
        return None
    recording = from_observations(run.seen, source="the taxi pipeline through a rush hour")
    if record is not None:
        record.write_text(recording.to_json() + "\n", encoding="utf-8")
        say(f"recording: {record}")
    return errors(recording)


def less_shed(models: dict[str, dict[str, Any]]) -> str | None:
    """Which of those that held the lag dropped the fewest rows; None: none held it."""
    holding = {name: m for name, m in models.items() if _at_most(m["lagging_cycles"], CYCLES_LAGGING)}
    return min(holding, key=lambda name: holding[name]["shed_rows"], default=None)


def conclude(
    *, capacity: float, overload: float, cycle_s: float, with_it: dict[str, Any], without: dict[str, Any], held: bool, **more: Any
) -> int:
    goals = {
        "the_rush_was_played": held,
        "without_control_the_lag_grows_all_along": bool(without["waiting_grows"]),
        f"lag_under_{LAG_LIMIT_S:g}_s_within_{CYCLES_LAGGING}_cycles": _at_most(with_it["lagging_cycles"], CYCLES_LAGGING),
        "every_query_at_least_its_floor": bool(with_it["floors_kept"]),
        "the_lower_priority_gives_way_first": bool(with_it["in_order"]),
        f"whole_again_within_{CYCLES_TO_RECOVER}_cycles": _at_most(with_it["recovered_cycles"], CYCLES_TO_RECOVER),
        "a_decision_on_every_window": with_it["decided"] == with_it["windows"] > 0,
        "no_decision_refused": with_it["refused"] == 0,
    }
    finish(
        "rush_hour",
        {
            "lag_controlled_s": with_it["lag_controlled_s"],
            "lag_uncontrolled_s": without["lag_uncontrolled_s"],
            "floors_kept": with_it["floors_kept"],
            "recovered_cycles": with_it["recovered_cycles"],
            "capacity_per_s": round(capacity),
            "overload": overload,
            "cycle_s": cycle_s,
            **{
                key: value for key, value in with_it.items() if key not in ("lag_controlled_s", "floors_kept", "recovered_cycles")
            },
            **{key: value for key, value in without.items() if key != "lag_uncontrolled_s"},
            **more,
            "goals": goals,
        },
    )
    return exit_code(goals)


def _at_most(value: float | None, most: float) -> bool:
    return value is not None and value <= most


def _rounded(value: float) -> float | None:
    """None for what did not come to pass."""
    return None if value == inf else round(value, 2)


def _whole(cycles: float) -> int | None:
    return None if cycles == inf else int(cycles)


def compared(with_it: dict[str, Any]) -> dict[str, Any]:
    """What two models of the CPU are compared by."""
    return {
        key: with_it[key]
        for key in (
            "shed_share", "shed_rows", "lag_controlled_s", "lag_peak_s", "waiting_controlled_s", "lagging_s", "lagging_cycles",
            "least_accuracy", "recovered_cycles",
        )
    }  # fmt: skip


def figure(path: Path, pipeline: Pipeline, runs: dict[str, Played], within: Rush, overload: float) -> None:
    table = [s for name, run in runs.items() for s in samples(pipeline, run.scenario, run.batches, run=name)]
    marks = [Mark(t_s=within.begins_s, text="the rush begins"), Mark(t_s=within.ends_s, text="it is over")]
    draw(table, path, title=f"Rush hour at {overload:g} times what one core carries", marks=marks, lag_limit_s=LAG_LIMIT_S)
    say(f"figure: {path}")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--figure", type=Path, default=Path("rush_hour.png"), help="where the figure goes")
    parser.add_argument("--record", type=Path, help="where what the cycles saw goes, for `spillway simulate --against`")
    parser.add_argument("--overload", type=float, default=2.0, help="rush as a multiple of what the heavy query carries")
    parser.add_argument(
        "--set", action="append", default=[], metavar="FIELD=VALUE", help="a field of the policy, such as cpu_model=affine"
    )
    parser.add_argument(
        "--models", action="store_true", help="play the rush under control twice, with cpu_model proportional and affine"
    )
    args = parser.parse_args(argv)
    for file in filter(None, (args.figure, args.record)):
        if not file.absolute().parent.is_dir():
            return fail(f"{file} cannot be written: make the folder {file.parent} first.")
    scenario = replace(load(REPO / "scenarios" / "rush_hour.yaml"), pipelines=())
    within = course.rush(scenario)
    try:
        tunables = dict(field.split("=", 1) for field in args.set)
        if args.models and "cpu_model" in tunables:
            return fail("--models sets cpu_model itself: leave --set cpu_model out.")
        with on_airflow(REPO / "pipelines" / "taxi.yaml", **tunables) as (stack, line, policy):
            return run(stack, line, policy, scenario, within, args)
    except LineFailed as error:
        return fail(str(error))


def run(stack: Any, line: Line, policy: Policy, scenario: Scenario, within: Rush, args: argparse.Namespace) -> int:
    line.start("off")
    capacity = saturate(line, scenario, HEAVY, Hand(say, line.pipeline.name))
    scenario = course.scaled(scenario, args.overload * capacity / within.peak)
    strangers = Strangers(stack)
    runs: dict[str, Played] = {}
    models: dict[str, dict[str, Any]] = {}
    for model in MODELS if args.models else (policy.cpu_model,):
        if runs:
            calm_down(line)
        if args.models:
            change_policy(cpu_model=model)
        say(f"rush of {args.overload * capacity:,.0f} events a second, with control, {model}; Airflow's spillway_qod decides")
        runs[f"{WITH}, {model}" if args.models else WITH] = played = play(
            line, scenario, scenario.duration_s, cycle_s=policy.qod_cycle_s
        )
        models[model] = under_control(played, line.pipeline, within, policy.qod_cycle_s)
    say("the same without control, to the end of the rush")
    calm_down(line)
    runs[WITHOUT] = last = play(line, scenario, within.ends_s)
    others = strangers.cpu_pct()
    figure(args.figure, line.pipeline, runs, within, args.overload)
    more = {"models": {name: compared(m) for name, m in models.items()}, "less_shed": less_shed(models)} if args.models else {}
    return conclude(
        capacity=capacity,
        overload=args.overload,
        cycle_s=policy.qod_cycle_s,
        with_it=models[policy.cpu_model],
        without=uncontrolled(last, line.pipeline, within, policy.qod_cycle_s),
        held=all(r.held for r in runs.values()),
        policy=dict(field.split("=", 1) for field in args.set),
        airflow=True,
        strangers_cpu_pct=others,
        twin_error=twin_error(runs[next(iter(runs))], args.record),
        figure=str(args.figure),
        **more,
    )


def calm_down(line: Line) -> None:
    """So that every run begins alike."""
    line.mode("off")
    line.clear()
    if not line.drain():
        raise LineFailed("What a rush left behind was not processed: see `spillway events`.")


if __name__ == "__main__":
    sys.exit(main())
