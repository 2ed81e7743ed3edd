"""Scenarios 1, 2 and 3 of the thesis "Stream Economics" (sections 5.5 to 5.7), shortened, on real Spark applications.

1. Taxi drives, both queries on node n1, of one priority and with floors 0.4 and 0.6. More arrives than n1 carries: both are shed
   and neither is at its floor. Then more than the floors leave room for: instances are re-scheduled to n2, those that the rule of
   the paper picks.
2. K-nearest neighbours join on the other node, with a lower priority. Their load grows: only they are shed. The load of the
   drives grows to three times what it was: the points give way to the query of the drives beside them. More at once would be
   beyond what CPU in proportion to rows can foretell: a batch costs something whatever is in it.
3. In every window, the estimated arrival rate of each topic against what the injector sent in it.

As in the thesis, CPU is in proportion to rows, and a backlog is not hurried away. Airflow does not run: threads do what its tasks
do, by the same functions, so that two cores have room for five applications.

    make bench NAME=thesis
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from _common import exit_code, fail, finish, say
from _level import Level, Part
from _line import Strangers, on_cluster
from spillway.decide.qod import decide
from spillway.demo.line import Line, LineFailed
from spillway.embedded import Stack
from spillway.inject.player import PlayOptions
from spillway.inject.scenario import Scenario, TopicLoad
from spillway.model.qod import Observation
from spillway.model.topology import Pipeline
from spillway.policy import Policy
from spillway.store import session
from spillway.store.decisions import Run, Stored, body_of, by_id, span

CYCLE_S, WARM_BATCHES = 10.0, 3
THESIS = {
    "qod_cycle_s": CYCLE_S,
    "qod_warm_up_s": 20.0,
    "qod_drain_horizon_s": 120.0,
    "batch_rows_first": 500,
    "cpu_model": "proportional",
}
CLEAR = 0.02
"""Accuracies closer than this are the same."""
GOAL_MEAN_PCT, GOAL_P90_PCT = 0.4, 2.8
TRIP = """service string not null, pickup_at timestamp not null, dropoff_at timestamp,
      pickup_zone int not null, dropoff_zone int not null, passengers int,
      distance_km double not null, fare double not null, tip double, total double not null"""
DRIVES = f"""
pipeline: drives
trigger: 3s
batch_target: 4s
operators:
  union:
    function: spark_jobs.operators.taxi:union
    schema: >-
      tpep_pickup_datetime timestamp, tpep_dropoff_datetime timestamp,
      lpep_pickup_datetime timestamp, lpep_dropoff_datetime timestamp,
      passenger_count int, trip_distance double not null,
      PULocationID int not null, DOLocationID int not null,
      fare_amount double not null, tip_amount double, total_amount double not null
    key: pickup_zone
    buckets: 2
  first:
    function: spark_jobs.operators.taxi:heavy
    schema: >-
      {TRIP}
    key: pickup_zone
    buckets: 2
    args: {{work: 6500}}
    query: {{priority: 5, min_accuracy: 0.4}}
  second:
    function: spark_jobs.operators.taxi:heavy
    schema: >-
      {TRIP}
    key: pickup_zone
    buckets: 1
    args: {{work: 9750}}
    query: {{priority: 5, min_accuracy: 0.6}}
edges:
  - {{topic: drives.yellow, to: union, partitions: 1}}
  - {{topic: drives.green, to: union, partitions: 1}}
  - {{from: union, to: first, partitions: 2}}
  - {{from: union, to: second, partitions: 1}}
applications:
  union: {{operators: [union], node: n2, executors: 1}}
  first: {{operators: [first], node: n1, executors: 2}}
  second: {{operators: [second], node: n1, executors: 1}}
"""
POINTS = """
pipeline: points
trigger: 3s
batch_target: 4s
operators:
  classify:
    function: spark_jobs.operators.knn:classify
    schema: x double not null, y double not null, z double not null
    buckets: 1
    args: {k: 5, points: 20000, classes: 4, seed: 7}
    query: {priority: 1, min_accuracy: 0.05}
edges:
  - {topic: points.in, to: classify, partitions: 1}
applications:
  classify: {operators: [classify], node: n2, executors: 1}
"""
CALM, FEW, GROWN = 60.0, 50.0, 3.0
"""Drives and points per second that leave everybody whole. How much is too much depends on the machine: the load climbs to it.
In scenario 2 the drives grow by the third."""
CLIMB, NUDGE, STEPS = 1.25, 1.12, 12
"""The load grows by the first factor until somebody is shed, and is then moved by the second one until the shedding stays between
its bounds: one decision may answer to what passes, a backlog from the way up among it."""
SHED, CLEAR_OF_FLOOR, STEADY = 0.92, 0.06, 0.06
"""Shed is who keeps no more than the first; nobody is closer to a floor than the second, and two decisions in a row are as close
as the third."""


class Load:
    """What is injected, by one player from beginning to end, and what was."""

    def __init__(self, line: Line, drives: float) -> None:
        self._drives, self._points, self.changed = Level(drives), Level(0.0), [0.0]
        loads = [
            TopicLoad(topic="drives.yellow", events="yellow", key="PULocationID", partitions=1, rate=Part(self._drives, 0.6)),
            TopicLoad(topic="drives.green", events="green", key="PULocationID", partitions=1, rate=Part(self._drives, 0.4)),
            TopicLoad(topic="points.in", events="points", partitions=1, rate=Part(self._points, 1.0)),
        ]
        scenario = Scenario(name="thesis", duration_s=3600.0, topics=tuple(loads), seed=1)
        self.playing = line.play(scenario, PlayOptions(tick_s=0.01))
        say(f"{drives:g} drives a second")

    def set(self, drives: float, points: float = 0.0) -> None:
        """From now on, so many events a second."""
        at_s = self.playing.elapsed_s + 0.1
        self._drives.set(at_s, drives)
        self._points.set(at_s, points)
        self.changed.append(at_s)
        say(f"{drives:g} drives and {points:g} points a second")

    def injected(self, topic: str, start: float, end: float) -> float:
        """Events between two moments (Unix time), as the injector counted them second by second: it may be late, and catches
        up."""
        if self.playing.report is None:
            return 0.0
        counted = [float(s.sent) for s in self.playing.report.seconds if s.topic == topic]
        return sent(counted, end - self.playing.began) - sent(counted, start - self.playing.began)


def sent(seconds: Sequence[float], passed_s: float) -> float:
    """Events in the first so many seconds.

    >>> sent([10.0, 20.0], 0.5), sent([10.0, 20.0], 1.5), sent([10.0, 20.0], 9.0), sent([10.0, 20.0], -1.0)
    (5.0, 20.0, 30.0, 0.0)
    """
    whole = int(max(passed_s, 0.0))
    return sum(seconds[:whole]) + (seconds[whole] * (passed_s - whole) if whole < len(seconds) and passed_s > 0.0 else 0.0)


def stored(pipelines: Sequence[str], since: float) -> list[Stored]:
    """The decisions on windows that began since then, in order."""
    start, end = datetime.fromtimestamp(since, UTC), datetime.now(UTC)
    with session("read") as connection:
        found = [d for p in pipelines for d in span(connection, Run(policy=Policy.load()), start, end, p)]
    return sorted((d for d in found if d.output and d.interval_start >= start), key=lambda d: d.interval_end)


def desired(decision: Stored) -> dict[str, float]:
    return {name: query["desired"] for name, query in (decision.output or {})["queries"].items()}


def floors(decision: Stored) -> dict[str, float]:
    return {name: query["floor"] for name, query in (decision.output or {})["queries"].items()}


def together(decision: Stored) -> bool:
    """Every query is shed, and none is at its floor."""
    floor = floors(decision)
    return all(floor[q] + CLEAR < accuracy < 1.0 - CLEAR for q, accuracy in desired(decision).items())


def picked_by_the_paper(body: dict[str, Any], policy: Policy) -> list[tuple[str, int]]:
    """Instances that the papers' literal cycle re-schedules on what a decision saw, in its order."""
    return [(m.operator, m.instance) for m in decide(Observation.from_json(body), policy, paper=True).moves]


def until(what: Callable[[], Any], limit_s: float, otherwise: str) -> Any:
    deadline = time.monotonic() + limit_s
    while not (found := what()):
        if time.monotonic() > deadline:
            raise LineFailed(f"After {limit_s:.0f} s {otherwise}.")
        time.sleep(1.0)
    return found


def watch(drives: Line, cycles: float) -> None:
    """Lets some cycles pass."""
    end = time.monotonic() + cycles * CYCLE_S
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(5.0, left))
        say(drives.look())


def settle(line: Line, rate: float) -> None:
    """What piled up while applications started is worked off, and everybody is whole."""

    def settled() -> bool:
        newest = stored((line.pipeline.name,), time.time() - 3 * CYCLE_S)[-1:]
        return max(line.lags().values()) < 6 * rate and bool(newest) and min(desired(newest[0]).values()) >= 1.0 - CLEAR

    say("waiting until nothing waits")
    until(settled, 240, f"rows of {line.pipeline.name} still waited, or were shed")


def climb(line: Line, query: str | None, put: Callable[[float], None], rate: float, enough: Callable[[], bool]) -> float:
    """More and more every two cycles until it is `enough`; the rate that was."""
    for _ in range(STEPS):
        put(rate)
        watch(line, 2)
        if enough():
            return rate
        rate *= CLIMB
    raise LineFailed(f"{rate / CLIMB:.0f} a second were not too much for {query or 'the node'}: see `spillway why`.")


def sheds(line: Line) -> bool:
    """The newest decision sheds somebody."""
    newest = stored((line.pipeline.name,), time.time() - 2.5 * CYCLE_S)[-1:]
    return bool(newest) and min(desired(newest[0]).values()) < 1.0 - CLEAR


def hold(line: Line, put: Callable[[float], None], rate: float) -> float:
    """The load at which all queries of a pipeline are shed and none is at its floor, decision after decision."""
    for _ in range(STEPS):
        put(rate)
        watch(line, 3)
        newest = stored((line.pipeline.name,), time.time() - 3.5 * CYCLE_S)[-2:]
        moved = nudge([(desired(d), floors(d)) for d in newest])
        if moved is None:
            return rate
        rate *= moved
    raise LineFailed(f"At {rate:.0f} a second the shedding of {line.pipeline.name} was not steady: see `spillway why`.")


def nudge(newest: Sequence[tuple[Mapping[str, float], Mapping[str, float]]]) -> float | None:
    """By what the load should be multiplied, seen from (desired, floor) of two decisions; None: it is right.

    >>> floor = {"a": 0.4, "b": 0.6}
    >>> [nudge([({"a": a, "b": b}, floor)] * 2) for a, b in ((0.8, 0.8), (0.8, 1.0), (0.41, 0.61))]
    [None, 1.12, 0.8928571428571428]
    """
    if len(newest) < 2 or any(accuracy > SHED for desired_, _ in newest for accuracy in desired_.values()):
        return NUDGE
    if any(accuracy < floor[q] + CLEAR_OF_FLOOR for desired_, floor in newest for q, accuracy in desired_.items()):
        return 1.0 / NUDGE
    (before, _), (after, _) = newest
    return None if all(abs(after[q] - before[q]) <= STEADY for q in after) else 1.0


def errors_pct(load: Load, observed: Sequence[tuple[float, float, str, float]]) -> list[float]:
    """Signed errors of the estimated rates: (start, end, topic, rows per second) against what was injected."""
    found = []
    for start, end, topic, rate in observed:
        true = load.injected(topic, start, end) / (end - start)
        if true > 0:
            found.append(100 * (rate - true) / true)
            if abs(found[-1]) > GOAL_P90_PCT:
                changes = [load.playing.began + at_s - start for at_s in load.changed]
                when = ", ".join(f"{after:+.1f} s" for after in changes if -1.0 < after < end - start)
                changed = f"; the load changed at {when}" if when else ""
                say(f"{topic}: {rate:.1f} instead of {true:.1f} a second, {found[-1]:+.1f} %{changed}")
    return found


def estimates(since: float) -> list[tuple[float, float, str, float]]:
    """The arrival rate of every external topic in every window."""
    found: dict[tuple[float, str], tuple[float, float, str, float]] = {}
    for decision in stored(("drives", "points"), since):
        with session("read") as connection:
            body = body_of(connection, decision.observation) if decision.observation is not None else None
        start, end = decision.interval_start.timestamp(), decision.interval_end.timestamp()
        for edge in (body or {}).get("edges", ()):
            if edge.get("from") is None and edge.get("out_rate") is not None:
                found[end, edge["topic"]] = (start, end, edge["topic"], edge["out_rate"])
    return list(found.values())


def same_priority(drives: Line, load: Load, policy: Policy) -> dict[str, Any]:
    """Scenario 1."""
    settle(drives, CALM)
    rate = hold(drives, load.set, climb(drives, None, load.set, 2 * CALM, lambda: sheds(drives)))
    since = time.time()
    watch(drives, 4)
    shed = stored(("drives",), since)
    say(f"shed: {[{q: round(a, 2) for q, a in desired(d).items()} for d in shed]}")
    climb(drives, None, load.set, 1.5 * rate, lambda: bool(drives.rows("demo_moves")))
    request = drives.rows("demo_moves")[0]
    with session("read") as connection:
        decision = by_id(connection, request["decision"])
        assert decision is not None and decision.observation is not None and decision.output is not None
        body = body_of(connection, decision.observation) or {}
    moved = [(f"drives/{m['operator']}", m["instance"]) for m in decision.output["moves"]]
    paper = picked_by_the_paper(body, policy)
    say(f"moves {moved}, the paper's rule picks {paper}; {request['application']} goes to {request['target']}")
    load.set(CALM)
    until(lambda: drives.rows("demo_moves")[0]["state"] in ("warming", "done"), 120, "the re-scheduled application did not run")
    return {
        "shed_decisions": len(shed),
        "rate": round(rate),
        "together": len(shed) > 1 and all(together(d) for d in shed),
        "accuracies": [{q: round(a, 3) for q, a in desired(d).items()} for d in shed],
        "moved": [f"{operator}.{instance}" for operator, instance in moved],
        "picked_by_the_paper": [f"{operator}.{instance}" for operator, instance in paper],
        "application": request["application"],
        "from": request["source"],
        "to": request["target"],
    }


def query_of(pipeline: Pipeline, application: str) -> str:
    """The query that an application runs."""
    operators = pipeline.application(application).operators
    queries = [q.name for q in pipeline.queries() if q.name in operators]
    if len(queries) != 1:
        raise LineFailed(
            f"Application {application} was re-scheduled and runs {len(queries)} queries, so no query of the drives is beside "
            "the points: scenario 2 needs first or second to move."
        )
    return queries[0]


def different_priorities(drives: Line, points: Line, load: Load, beside: str) -> dict[str, Any]:
    """Scenario 2; `beside` is the query of the drives that shares its node with the points."""
    load.set(CALM, FEW)
    points.start("apply")
    until(lambda: _ran(points) >= WARM_BATCHES, 90, "the points did not warm up")
    settle(points, FEW)

    def put(rate: float) -> None:
        load.set(CALM, rate)

    many = hold(points, put, climb(points, "classify", put, 6 * FEW, lambda: sheds(points)))  # (B)
    since = time.time()
    watch(drives, 4)
    of_points, of_drives = stored(("points",), since), stored(("drives",), since)
    more_points = [desired(d)["classify"] for d in of_points]
    unmoved = [desired(d)[beside] for d in of_drives]
    load.set(GROWN * CALM, many)  # (C)
    watch(drives, 1)
    since = time.time()
    watch(drives, 4)
    of_both = stored(("drives", "points"), since)
    for decision in of_both:
        say(f"{decision.pipeline}: {decision.reason}")
    more_drives = [desired(d)["classify"] for d in of_both if d.pipeline == "points"]
    still = [desired(d)[beside] for d in of_both if d.pipeline == "drives"]
    say(f"(B) points {_rounded(more_points)}, {beside} {_rounded(unmoved)}")
    say(f"(C) points {_rounded(more_drives)}, {beside} {_rounded(still)}")
    return {
        "beside": beside,
        "points": round(many),
        "points_when_points_grow": _rounded(more_points),
        "drives_when_points_grow": _rounded(unmoved),
        "points_when_drives_grow": _rounded(more_drives),
        "drives_when_drives_grow": _rounded(still),
        "in_order": in_order(more_points, unmoved, more_drives, still),
    }


def in_order(
    more_points: Sequence[float], unmoved: Sequence[float], more_drives: Sequence[float], still: Sequence[float]
) -> bool:
    """Only the less important one gives way: to its own load, and further to the other's."""
    if min(map(len, (more_points, unmoved, more_drives, still))) < 2:
        return False
    whole = all(a >= 1.0 - CLEAR for a in (*unmoved, *still))
    return whole and max(more_points) < 1.0 - CLEAR and statistics.mean(more_drives) < statistics.mean(more_points) - CLEAR


def _ran(line: Line) -> int:
    return sum(r["batches"] for r in line.rows("demo_batches", since=datetime.now(UTC) - timedelta(minutes=10)))


def _rounded(values: Sequence[float]) -> list[float]:
    return [round(v, 3) for v in values]


def conclude(*, same: Mapping[str, Any], different: Mapping[str, Any], errors: Sequence[float], **more: Any) -> int:
    mean = statistics.mean(errors) if errors else None
    size = sorted(abs(e) for e in errors)
    p90 = size[min(len(size) - 1, int(0.9 * len(size)))] if size else None
    goals = {
        "one_priority_is_shed_together": bool(same["together"]),
        "the_paper_s_rule_picks_what_moves": bool(same["moved"])
        and same["moved"] == same["picked_by_the_paper"][: len(same["moved"])],
        "different_priorities_are_shed_in_order": bool(different["in_order"]),
        f"mean_error_at_most_{GOAL_MEAN_PCT:g}_pct": mean is not None and abs(mean) <= GOAL_MEAN_PCT,
        f"p90_error_at_most_{GOAL_P90_PCT:g}_pct": p90 is not None and p90 <= GOAL_P90_PCT,
    }
    finish(
        "thesis",
        {
            "scenario_1": same,
            "scenario_2": different,
            "scenario_3": {
                "windows_and_topics": len(errors),
                "mean_error_pct": None if mean is None else round(mean, 3),
                "mean_absolute_error_pct": round(statistics.mean(size), 3) if size else None,
                "p90_error_pct": None if p90 is None else round(p90, 3),
            },
            **more,
            "goals": goals,
        },
    )
    return exit_code(goals)


def main(argv: list[str] | None = None) -> int:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args(argv)
    try:
        with on_cluster(**THESIS) as (stack, policy):
            return run(stack, policy)
    except LineFailed as error:
        return fail(str(error))


def run(stack: Stack, policy: Policy) -> int:
    with tempfile.TemporaryDirectory() as folder:
        lines = []
        for name, text in (("drives", DRIVES), ("points", POINTS)):
            file = Path(folder) / f"{name}.yaml"
            file.write_text(text, encoding="utf-8")
            lines.append(Line(file, stack.env["SPILLWAY_KAFKA"], say, "bench"))
    drives, points = lines
    load, strangers = Load(drives, CALM), Strangers(stack)
    try:
        drives.start("apply")
        until(lambda: _ran(drives) >= 3 * WARM_BATCHES, 120, "the drives did not warm up")
        began = time.time()
        same = same_priority(drives, load, policy)
        beside = query_of(drives.pipeline, same["application"])
        different = different_priorities(drives, points, load, beside)
    finally:
        load.playing.end()
    errors = errors_pct(load, estimates(began))
    return conclude(
        same=same,
        different=different,
        errors=errors,
        cycle_s=policy.qod_cycle_s,
        airflow=False,
        strangers_cpu_pct=strangers.cpu_pct(),
    )


if __name__ == "__main__":
    sys.exit(main())
