"""How long a rescale is felt: word count and ad analytics with much state, under load, rescaled in every way there is.

Each kind of plan is carried out `--rounds` times there and back, so six times unless told: 2 → 4 → 2 executors, 8 → 16 → 8
buckets, a move to the other node. The pause is the longest gap between commits that brought new rows, against the steady gap
before it and against a plain stop-and-start of the application in the same run. Where a plan has the operator go on from other
files of state than before (other buckets, or a copy that was followed up), rows and checksum of both are compared; where it goes
on from the same files there is nothing to compare. At the end every count that came out is held against what went in.

A restart with other buckets rewrites the state inside its pause. That grows with the state and is reported without a goal: for a
large state it is what `shadow` is for.

    make bench NAME=rescale
    make bench NAME=rescale ARGS="--keys 20000 --rounds 1 --kinds restart,executors --pipelines wordcount"
    make bench NAME=rescale ARGS="--record rescale.jsonl --pipelines ads"

All of it takes hours. With `--record`, a pipeline with so many keys that is in the file is not measured again, and the goals are
those of all.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from _carrier import Carrier
from _common import Record, exit_code, finish, say, spread
from _counting import NODES, WORKLOADS, Workload, counted
from _line import Strangers, changeable_policy
from _rescale import Feed, Rescaled, lag_back, longest, middle
from spillway.embedded import Stack
from spillway.embedded.owner import scratch
from spillway.model.rescale import Kind
from spillway.store.rescale import Plan

from tests.support.line import until

SIZES, ROUNDS, RATE = "100000,1000000", 3, 500.0
WAYS: dict[str, tuple[str, ...]] = {
    Kind.RESTART: ("anew", "executors", "buckets"),
    Kind.EXECUTORS: ("executors",),
    Kind.HANDOVER: ("node", "executors"),
    Kind.SHADOW: ("buckets",),
}
"""What each kind is made to change."""
HANDOVERS = tuple(f"{Kind.HANDOVER}/{change}" for change in WAYS[Kind.HANDOVER])
EXECUTORS, BUCKETS = (2, 4), (8, 16)
STOP_AND_START = "stop_and_start"
SMALL = 300_000
"""Keys up to which the goals for a small state hold."""
RESTART_STEADY, RESTART_S = 2.0, 1.0
HANDOVER_S, HANDOVER_SHARE, HANDOVER_LARGE_S = 2.0, 0.1, 3.0
SHADOW_S, SHADOW_GROWTH = 5.0, 1.5
BESIDE_STEADY = 2.0
QUIET_GAPS, LAG_FACTOR, LAG_LIMIT_S, PLAN_LIMIT_S = 8, 1.5, 120.0, 1_500.0


# ---- one change ----


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    way: str
    """Kind and change, such as `restart/anew`; or a plain stop-and-start."""
    done: bool
    steady_s: float
    pause_s: float | None
    beside_s: float | None = None
    """The running query's own longest gap while its successor rehearsed."""
    lag_back_s: float | None = None
    rows: int | None = None
    rewritten: bool = False
    """The operator went on from other files of state than before, so that there are two to be compared."""
    equal: bool | None = None
    """Rows and checksum of the state before and after, where it was rewritten; None: it was not compared."""
    followed: bool | None = None
    """Its successor has followed what ran, and gone on from there; None: this kind has none."""
    detail: str = ""


def changes(kind: str, change: str) -> list[dict[str, Any]]:
    """There and back.

    >>> changes("shadow", "buckets"), changes("restart", "anew")
    ([{'buckets': 16}, {'buckets': 8}], [{}, {}])
    """
    if change == "anew":
        return [{}, {}]
    name, values = {"executors": ("to", EXECUTORS), "buckets": ("buckets", BUCKETS), "node": ("node", NODES)}[change]
    return [{name: values[1]}, {name: values[0]}]


class Run:
    """One pipeline with state of one size, under load."""

    def __init__(self, line: Rescaled) -> None:
        self.line, self.samples = line, list[Sample]()

    def quiet(self) -> tuple[float, float]:
        """Waits for a stretch without any change; returns the median gap and the greatest lag in it."""
        line, since = self.line, time.time()
        until(line.runs_as_it_should, 180, "the application runs as it should")
        until(lambda: len(line.watch.gaps(since)) >= QUIET_GAPS, 180, "a steady stretch", every_s=0.2)
        steady = middle(g.length_s for g in line.watch.gaps(since))
        assert steady is not None
        return steady, max((lag for at, lag in line.watch.lags if at >= since), default=0)

    def stop_and_start(self) -> None:
        steady, lag = self.quiet()
        since = time.time()
        self.line.stop_and_start()
        self.line.batches_go_on(3)
        pause, back = longest(self.line.watch.gaps(), since, time.time()), self._lag_back(lag, since)
        self._note(Sample(way=STOP_AND_START, done=True, steady_s=steady, pause_s=pause, lag_back_s=back))

    def change(self, kind: str, change: str, **wanted: Any) -> None:
        way = f"{kind}/{change}"
        steady, lag = self.quiet()
        say(f"{way}: {wanted or 'as it is'}")
        try:
            plan = self.line.followed(self.line.ask(kind, **wanted).id, PLAN_LIMIT_S)
        except (RuntimeError, TimeoutError) as error:
            self._note(Sample(way=way, done=False, steady_s=steady, pause_s=None, detail=str(error)))
            return
        told, settled = _ended(plan, "order", "cutover"), _ended(plan, "verify")
        if plan.state != "done" or told is None or settled is None:
            self._note(Sample(way=way, done=False, steady_s=steady, pause_s=None, detail=f"{plan.state}: {plan.detail}"))
            return
        launched = next((s.began_at.timestamp() for s in plan.steps if s.step == "launch" and s.began_at), None)
        self.line.watch.look()
        gaps, running = self.line.watch.gaps(), self.line.watch.gaps(checkpoint=plan.checkpoint_from)
        beside = [g for g in running if launched is not None and launched < g.ends <= told]
        state = next((s.evidence.get("state", []) for s in plan.steps if s.step == "digest"), [])
        rewritten = (plan.checkpoint_from, plan.buckets_from) != (plan.checkpoint_to, plan.buckets_to)
        told_apart = rewritten and state
        self._note(
            Sample(
                way=way,
                done=True,
                steady_s=steady,
                pause_s=longest(gaps, told, settled),
                beside_s=max((g.length_s for g in beside), default=None),
                lag_back_s=self._lag_back(lag, told),
                rows=sum(one["rows_after"] for one in state) if state else None,
                rewritten=rewritten,
                equal=all(o["same_checksum"] and o["rows_before"] == o["rows_after"] for o in state) if told_apart else None,
                followed=None if launched is None else plan.follows,
            )
        )

    def _lag_back(self, steady_lag: int, since: float) -> float | None:
        """Waits for it."""
        deadline = time.monotonic() + LAG_LIMIT_S
        while time.monotonic() < deadline:
            if (found := lag_back(self.line.watch.lags, LAG_FACTOR * steady_lag, since)) is not None:
                return found
            time.sleep(0.5)
        return None

    def _note(self, sample: Sample) -> None:
        def seconds(value: float | None) -> str:
            return "not known" if value is None else f"{value:.2f} s"

        said = f"{sample.way}: pause {seconds(sample.pause_s)}, steady {seconds(sample.steady_s)}"
        said += f", beside {seconds(sample.beside_s)}" if sample.beside_s is not None else ""
        say(f"{said}, lag back after {seconds(sample.lag_back_s)}, state equal: {sample.equal} {sample.detail}")
        self.samples.append(sample)


def _ended(plan: Plan, *names: str) -> float | None:
    return next((s.ended_at.timestamp() for name in names if (s := plan.done(name)) and s.ended_at), None)


# ---- what it comes to ----


def summed_up(samples: Sequence[Sample], counts: Mapping[str, int], keys: int) -> dict[str, Any]:
    """Medians and ratios by way; and whether state and counts were equal."""
    plain = middle(s.pause_s for s in samples if s.way == STOP_AND_START)
    ways: dict[str, Any] = {}
    for way in dict.fromkeys(s.way for s in samples):
        of = [s for s in samples if s.way == way]
        pauses, beside = [s.pause_s for s in of if s.pause_s is not None], [s for s in of if s.beside_s is not None]
        backs, rows = [s.lag_back_s for s in of if s.lag_back_s is not None], [s.rows for s in of if s.rows is not None]
        found: dict[str, Any] = {"times": len(of), "done": sum(s.done for s in of)}
        if pauses:
            steady = middle(s.steady_s for s in of)
            assert steady is not None
            found |= {"pause_s": spread(pauses), "steady_s": round(steady, 3)}
            found["to_steady"] = middle(round(s.pause_s / s.steady_s, 3) for s in of if s.pause_s is not None)
            found["to_stop_and_start"] = round(found["pause_s"]["median"] / plain, 3) if plain else None
        if beside:
            found["beside_s"] = spread([s.beside_s for s in beside if s.beside_s is not None])
            found["beside_to_steady"] = middle(round(s.beside_s / s.steady_s, 3) for s in beside if s.beside_s is not None)
        found["lag_back_s"] = spread(backs, 1) if backs else None
        found["lag_is_back"] = len(backs) == len([s for s in of if s.done])
        if way != STOP_AND_START:
            rewritten = [s.equal is True for s in of if s.done and s.rewritten]
            found |= {"state_rows": max(rows, default=None), "state_rewritten": len(rewritten)}
            found["state_equal"] = all(rewritten) if rewritten else None
        if successors := [s.followed for s in of if s.followed is not None]:
            found["followed"] = sum(successors)
        if failed := [s.detail for s in of if not s.done]:
            found["failed"] = failed
        ways[way] = found
    return {"keys": keys, "ways": ways, "counts": dict(counts)}


def together(lines: Sequence[Mapping[str, Any]]) -> dict[str, dict[int, dict[str, Any]]]:
    """Results of one pipeline and size that were measured kind by kind, each against the stop-and-start of its own run."""
    found: dict[str, dict[int, dict[str, Any]]] = {}
    for line in lines:
        of, result = found.setdefault(line["pipeline"], {}), line["result"]
        before = of.get(line["keys"], {"ways": {}, "counts": {}})
        counts = {name: before["counts"].get(name, 0) + count for name, count in result["counts"].items()}
        of[line["keys"]] = {**before, **result, "ways": {**before["ways"], **result["ways"]}, "counts": counts}
    return found


def goals(results: Mapping[str, Mapping[int, Mapping[str, Any]]]) -> dict[str, Any]:
    """By pipeline and number of keys; what was not measured has no goal."""
    found: dict[str, Any] = {}
    for pipeline, sizes in results.items():
        of: dict[str, Any] = {}
        for keys, result in sizes.items():
            of[str(keys)] = _goals_at(keys, result)
        shadows = {keys: _pause(r, "shadow/buckets") for keys, r in sizes.items()}
        known = {keys: pause for keys, pause in shadows.items() if pause is not None}
        if len(known) > 1:
            of[f"shadow_at_most_{SHADOW_GROWTH:g}_times_with_more_keys"] = known[max(known)] <= SHADOW_GROWTH * known[min(known)]
        found[pipeline] = of
    return found


def _pause(result: Mapping[str, Any], way: str) -> float | None:
    pause: float | None = result["ways"].get(way, {}).get("pause_s", {}).get("median")
    return pause


def _goals_at(keys: int, result: Mapping[str, Any]) -> dict[str, bool]:
    ways, counts = result["ways"], result["counts"]
    compared = [w["state_equal"] for w in ways.values() if w.get("state_equal") is not None]
    met = {
        "every_plan_is_done": all(w["done"] == w["times"] for w in ways.values()),
        **({"state_is_equal": all(compared)} if compared else {}),
        "counts_are_equal": not any(counts[name] for name in ("lost", "wrong", "unknown", "doubled")),
        "lag_is_back": all(w["lag_is_back"] for w in ways.values()),
    }
    if any("followed" in w for w in ways.values()):
        met["successors_follow"] = all(w["followed"] == w["done"] for w in ways.values() if "followed" in w)
    for way in ("restart/anew", "restart/executors"):
        if (pause := _pause(result, way)) is not None:
            limit = RESTART_STEADY * ways[way]["steady_s"] + RESTART_S
            met[f"{way}_at_most_{RESTART_STEADY:g}_steady_and_{RESTART_S:g}_s"] = pause <= limit
    for way in HANDOVERS:
        if (pause := _pause(result, way)) is not None:
            limit = HANDOVER_S if keys <= SMALL else HANDOVER_LARGE_S
            met[f"{way}_at_most_{limit:g}_s"] = pause <= limit
            share = ways[way]["to_stop_and_start"]
            if keys <= SMALL and share is not None:
                met[f"{way}_at_most_{HANDOVER_SHARE:g}_of_stop_and_start"] = share <= HANDOVER_SHARE
    if (pause := _pause(result, "shadow/buckets")) is not None:
        met[f"shadow_at_most_{SHADOW_S:g}_s"] = pause <= SHADOW_S
    for way in (*HANDOVERS, "shadow/buckets"):
        if (share := ways.get(way, {}).get("beside_to_steady")) is not None:
            met[f"{way}_beside_at_most_{BESIDE_STEADY:g}_steady"] = share <= BESIDE_STEADY
    return met


def conclude(results: Mapping[str, Mapping[int, Mapping[str, Any]]], **more: Any) -> int:
    met = goals(results)
    named = {pipeline: {str(keys): result for keys, result in sizes.items()} for pipeline, sizes in results.items()}
    finish("rescale", {"pipelines": named, **more, "goals": met})
    return exit_code(met)


# ---- running ----


@contextmanager
def pipeline(workload: Workload, keys: int, rate: float) -> Iterator[tuple[Rescaled, Feed, Stack]]:
    """On services of its own, with as many keys in its state, under load."""
    with ExitStack() as held:
        held.enter_context(changeable_policy({"batch_rows_first": 10_000}))
        folder = held.enter_context(scratch("bench"))
        stack = Stack(home=folder / "run", services=("postgres", "kafka", "spark"))
        held.callback(stack.clean)
        say(f"{workload.name} with {keys:,} keys: starting the services")
        stack.up()
        held.enter_context(Carrier(stack.env, Path(held.enter_context(tempfile.TemporaryDirectory()))))
        line = held.enter_context(Rescaled(stack, workload.topology(keys), workload.operator))
        feed = Feed(stack.env["SPILLWAY_KAFKA"], workload.topic, lambda n: workload.make(n, keys), rate)
        feed.burst(workload.first(keys))
        until(line.running, 240, "the applications run")
        line.watch.start()
        feed.start()
        say("the state is filled")
        until(lambda: _filled(line, keys), 1_800, f"{keys:,} keys of state", every_s=2.0)
        until(lambda: line.watch.behind() < 10 * rate, 900, "the backlog of filling is gone", every_s=2.0)
        yield line, feed, stack


def _filled(line: Rescaled, keys: int) -> bool:
    text = "select max(state_rows) from spillway.batch_metric where pipeline = %s and operator = %s"
    return (line.sql(text, line.pipeline.name, line.operator)[0][0] or 0) >= keys


def measured(workload: Workload, keys: int, args: argparse.Namespace, kinds: Sequence[str]) -> dict[str, Any]:
    with pipeline(workload, keys, args.rate) as (line, feed, stack):
        strangers, run = Strangers(stack), Run(line)
        for number in range(args.rounds):
            say(f"round {number + 1} of {args.rounds}")
            run.stop_and_start()
            ways = [(kind, change) for kind in kinds for change in WAYS[kind]]
            for kind, change in ways if number % 2 == 0 else ways[::-1]:
                for wanted in changes(kind, change):
                    run.change(kind, change, **wanted)
        sent = feed.finish()
        until(lambda: line.watch.behind() == 0, 300, "everything is read", every_s=1.0)
        others = strangers.cpu_pct()
        line.stop(120)
        say("what came out is counted")
        counts = counted(stack.env["SPILLWAY_KAFKA"], workload, keys, sent)
        say(f"{workload.name}, {keys:,} keys: {counts}")
        return summed_up(run.samples, counts, keys) | {"strangers_cpu_pct": others}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", default=SIZES, type=_numbers, help=f"keys of state, one run each (default {SIZES})")
    parser.add_argument("--kinds", default=",".join(WAYS), type=_among(WAYS), help="of restart,executors,handover,shadow")
    parser.add_argument("--pipelines", default=",".join(WORKLOADS), type=_among(WORKLOADS), help="of wordcount,ads")
    parser.add_argument("--rounds", default=ROUNDS, type=int, help=f"how often each change is made, there and back ({ROUNDS})")
    parser.add_argument("--rate", default=RATE, type=float, help=f"events a second ({RATE:g})")
    parser.add_argument("--record", type=Path, help="JSON lines to go on from, and to add to")
    args = parser.parse_args(argv)
    record, lines = Record(args.record), list[dict[str, Any]]()
    for name in args.pipelines:
        for keys in args.keys:
            asked = {"pipeline": name, "keys": keys, "rounds": args.rounds, "rate": args.rate}
            known = [line for line in record.lines if {n: line[n] for n in asked} == asked]
            left = [kind for kind in args.kinds if not any(kind in line["kinds"] for line in known)]
            if left:
                record.add({**asked, "kinds": left, "result": measured(WORKLOADS[name], keys, args, left)})
                known.append(record.lines[-1])
            lines += known
    return conclude(together(lines), rounds=args.rounds, events_per_s=args.rate, commits=record.commits())


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def _among(known: Mapping[str, Any]) -> Callable[[str], list[str]]:
    def parse(text: str) -> list[str]:
        if unknown := [name for name in text.split(",") if name not in known]:
            raise argparse.ArgumentTypeError(f"{unknown[0]} is none of {', '.join(known)}")
        return text.split(",")

    return parse


if __name__ == "__main__":
    sys.exit(main())
