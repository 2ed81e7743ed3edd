"""Stored metrics → one closed window, the same for a cycle that runs now and for one that is replayed.

A row belongs to a window when it was measured by its end and written within `qod_settle_s` of it. What came later is not read, so
that a replay sees what the cycle saw.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from math import inf
from typing import TYPE_CHECKING, Any

from spillway.model.topology import Edge, Pipeline
from spillway.model.window import Declared, EdgeRow, InstanceRow, Interval, NodeRow, OperatorRow, Window
from spillway.observe.rates import Arrival, EdgeBatch, Flow, arrival, done_rate, flow, span_s, split_cpu
from spillway.policy import Policy
from spillway.store.promises import accuracies
from spillway.store.queries import rows

if TYPE_CHECKING:
    from psycopg2.extensions import connection as Connection

Row = dict[str, Any]
ENDED = ("stopped", "failed", "fenced")
"""States of a driver's last heartbeat."""
UNMOVED_S = 600.0
"""For so long nothing counts on the move of an application that was refused, failed or was not begun in time."""
RISING = 0.75
"""Of the rows that came in, the share that was worked on: with less, the CPU of a window is that of fewer rows than came in."""
LOOK_BACK = 3
"""How many times as far as metrics may be old it is looked for the last ones: what is older than that is missing, not stale."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What the store has of one window, still as rows."""

    executors: Mapping[tuple[str, str], Sequence[Row]]
    """By pipeline and application; one without a node: the application runs and no executor was measured."""
    batches: Mapping[tuple[str, str], Sequence[Row]]
    """By pipeline and operator; one row per batch and edge, in order."""
    arrivals: Mapping[str, Arrival | None]
    """By external topic."""
    ahead: Mapping[str, float]
    taken_ms: Mapping[tuple[str, str], Mapping[tuple[str, str], float]]
    """By pipeline and application: by operator and executor."""
    keeps: Mapping[tuple[str, str], Row]
    """The last setting by pipeline and edge."""
    plans: Mapping[tuple[str, str], Row]
    """What plans to rescale do, by pipeline and application."""


def read_window(conn: Connection, interval: Interval, policy: Policy, *, off_too: bool = False) -> Window:
    """The window of all pipelines that are advised or applied; with `off_too`, the others as if they were advised."""
    back = timedelta(seconds=interval.seconds * policy.qod_stale_cycles * LOOK_BACK)
    times: dict[str, datetime] = {
        "start": interval.start,
        "end": interval.end,
        "since": interval.start - back,
        "stale": interval.end - back / LOOK_BACK,
        "warm": interval.end - timedelta(seconds=policy.qod_warm_up_s),
        "closed": interval.end + timedelta(seconds=policy.qod_settle_s),
    }
    declared = {
        r["pipeline"]: Declared(
            pipeline=Pipeline.from_json(r["spec"]), version=r["version"], mode="advise" if r["mode"] == "off" else r["mode"]
        )
        for r in rows(conn, "qod_pipelines", end=interval.end, all=off_too)
    }
    stored = _read(conn, times, declared)
    nodes = tuple(
        NodeRow(node=r["node"], cores=r["cores"], cpu=r["cpu"], age_s=_age(r["newest"], interval), ahead_s=r["ahead_s"])
        for r in rows(conn, "qod_nodes", **times)
    )
    parts = [_Part(name, d.pipeline, stored, interval, policy) for name, d in declared.items()]
    unmade = unmoved(rows(conn, "qod_unmoved", **_moves(interval, policy)), declared)
    return Window(
        interval=interval,
        declared=declared,
        nodes=nodes,
        instances=tuple(i for p in parts for i in p.instances()),
        operators=tuple(o for p in parts for o in p.operators()),
        edges=tuple(e for p in parts for e in p.edges()),
        unmoved=unmade | {key for key, r in stored.plans.items() if r["under_way"]},
        preparing=frozenset(key for key, r in stored.plans.items() if _preparing(r, interval, policy)),
        changing=frozenset(key for key, r in stored.plans.items() if _changing(r, times)),
        settling=frozenset(key for key, r in stored.plans.items() if r["told_at"] is not None and r["told_at"] > times["warm"]),
        enlarged=frozenset(key for key, r in stored.plans.items() if _just_enlarged(r, interval)),
    )


def _preparing(plan: Row, interval: Interval, policy: Policy) -> bool:
    """Whether something was begun beside what runs, and not long ago: a plan that nobody carries out any more must not keep
    accuracy down."""
    begun = plan["begun_at"]
    recent = begun is not None and _age(begun, interval) <= policy.rescale_hold_s
    return bool(plan["under_way"]) and plan["told_at"] is None and recent


def _changing(plan: Row, times: Mapping[str, datetime]) -> bool:
    """Whether the window saw a change that had not settled at its beginning; one that does not settle is waited for no longer
    than what is new may warm up."""
    told, settled = plan["told_at"], plan["settled_at"]
    return told is not None and told > times["warm"] and (settled is None or settled > times["start"])


def _just_enlarged(plan: Row, interval: Interval) -> bool:
    settled = plan["settled_at"]
    before = interval.start - timedelta(seconds=interval.seconds)
    return bool(plan["grew"]) and settled is not None and before < settled <= interval.start


def _moves(interval: Interval, policy: Policy) -> dict[str, datetime]:
    return {
        "end": interval.end,
        "patience": interval.end - timedelta(seconds=UNMOVED_S),
        "waited": interval.end - timedelta(seconds=policy.qod_request_s),
    }


def unmoved(found: Iterable[Mapping[str, Any]], declared: Mapping[str, Declared]) -> frozenset[tuple[str, str]]:
    """Pipelines and applications: what moves is always an application, whichever of its operators was to be moved."""
    return frozenset(
        (r["pipeline"], a.name)
        for r in found
        if r["pipeline"] in declared
        for a in declared[r["pipeline"]].pipeline.applications
        if a.name == r["application"] or r["operator"] in a.operators
    )


def _read(conn: Connection, times: Mapping[str, datetime], declared: Mapping[str, Declared]) -> Stored:
    names = list(declared)
    executors, batches = defaultdict(list), defaultdict(list)
    for r in rows(conn, "qod_executors", **times):
        executors[r["pipeline"], r["application"]].append(r)
    for r in rows(conn, "qod_batches", pipelines=names, **times):
        batches[r["pipeline"], r["operator"]].append(r)
    taken: dict[tuple[str, str], dict[tuple[str, str], float]] = defaultdict(dict)
    for r in rows(conn, "qod_executor_rows", **times):
        taken[r["pipeline"], r["application"]][r["operator"], r["executor"]] = r["cpu_ms"]
    topics = sorted({e.topic for d in declared.values() for e in d.pipeline.edges if e.producer is None})
    readings: dict[str, dict[int, list[tuple[float, int]]]] = {t: defaultdict(list) for t in topics}
    ahead: dict[str, float] = {}
    for r in rows(conn, "qod_offsets", topics=topics, **times):
        readings[r["topic"]][r["partition"]].append((r["at"].timestamp(), r["end_offset"]))
        ahead[r["topic"]] = max(ahead.get(r["topic"], r["ahead_s"]), r["ahead_s"])
    start, end = times["start"].timestamp(), times["end"].timestamp()
    edges = [(name, e.name) for name, d in declared.items() for e in d.pipeline.edges]
    settings = rows(conn, "qod_settings", pipelines=[p for p, _ in edges], edges=[e for _, e in edges], end=times["end"])
    plans = rows(conn, "qod_plans", pipelines=names, **times)
    return Stored(
        executors=executors,
        batches=batches,
        arrivals={t: arrival(found, start, end) for t, found in readings.items()},
        ahead=ahead,
        taken_ms=taken,
        keeps={(r["pipeline"], r["edge"]): r for r in settings},
        plans={(r["pipeline"], r["application"]): r for r in plans},
    )


class _Part:
    """One pipeline's part of a window."""

    def __init__(self, name: str, pipeline: Pipeline, stored: Stored, interval: Interval, policy: Policy) -> None:
        self.name, self.pipeline, self.stored, self.interval, self.policy = name, pipeline, stored, interval, policy
        start = interval.start.timestamp()
        self._flows = {
            e.name: flow(_edge_batches(stored.batches.get((name, e.consumer), ()), e.name), start, self._trigger_s(e.consumer))
            for e in pipeline.edges
        }
        self._out: dict[str, float | None] = {}
        self._in: dict[str, float | None] = {}
        for operator in _sources_first(pipeline):
            for edge in pipeline.inputs(operator):
                self._out[edge.name] = self._out_rate(edge)
            self._in[operator] = self._in_rate(operator)
        self._shares = {e.name: self._share(e) for e in pipeline.edges}
        self._warming = {a.name: self._is_warming(a.name) for a in pipeline.applications}

    # -- rates

    def _trigger_s(self, operator: str) -> float:
        """What a batch may take before it is late: no end of it while a driver is new, whose batches are long for that reason."""
        application = next(a.name for a in self.pipeline.applications if operator in a.operators)
        known = self.stored.executors.get((self.name, application), ())
        young = bool(known) and _age(known[0]["started_at"], self.interval) < self.policy.qod_warm_up_s
        return inf if young else self.pipeline.trigger_s

    def _out_rate(self, edge: Edge) -> float | None:
        """Of an external topic, from its end offsets; of an edge inside, from what its producer put out."""
        if edge.producer is None:
            found = self.stored.arrivals.get(edge.topic)
            return found.rate if found else None
        batches = _batches(self.stored.batches.get((self.name, edge.producer), ()))
        quiet = not batches or batches[-1]["ended_at"] <= self.interval.start
        if quiet and self._in[edge.producer] == 0.0:
            return 0.0
        if not batches:
            return None
        begin = next((n for n, b in enumerate(batches) if b["ended_at"] > self.interval.start), len(batches) - 1)
        if len(batches) == 1:
            return self._by_one_batch(edge.producer, batches[0]["output_rows"])
        base = batches[begin - 1] if begin else batches[0]
        counted = batches[max(begin, 1) :]
        rows_out = [b["output_rows"] for b in counted]
        first, last = ((b["started_at"].timestamp(), b["ended_at"].timestamp()) for b in (base, batches[-1]))
        span = span_s(first, last, self._trigger_s(edge.producer))
        return sum(rows_out) / span if span > 0 and None not in rows_out else None

    def _by_one_batch(self, operator: str, rows_out: int | None) -> float | None:
        """What comes out per row that gets in, times what gets in."""
        flows = [self._flows[e.name] for e in self.pipeline.inputs(operator)]
        kept, rate = sum(f.kept for f in flows if f is not None), self._in[operator]
        return rate * rows_out / kept if rows_out is not None and rate is not None and kept else None

    def _in_rate(self, operator: str) -> float | None:
        """Rows behind the shedders, per second: of what arrives on each input, the share that gets in.

        Where the offsets do not tell the share, what the batches themselves kept; of a single batch that is a part of what it
        read. Without a batch only one thing is known: where nothing arrives, nothing comes in."""
        total = 0.0
        for edge in self.pipeline.inputs(operator):
            arriving, seen = self._out[edge.name], self._flows[edge.name]
            if seen is not None and seen.share is not None and arriving is not None:
                total += arriving * seen.share
            elif arriving == 0.0:
                continue
            elif seen is not None and seen.kept_rate is not None:
                total += seen.kept_rate
            elif seen is not None and arriving is not None:
                total += arriving * (seen.kept / seen.read if seen.read else seen.keep)
            else:
                return None
        return total

    def _done_rate(self, operator: str) -> float | None:
        """Rows per second that the CPU of the window was used for, where they are clearly fewer than came in: while load rises,
        many of those are still in the batch that runs at its end."""
        kept: dict[int, tuple[float, float, int]] = {}
        found = self.stored.batches.get((self.name, operator), ())
        for r in found:
            if r["checkpoint"] == found[-1]["checkpoint"]:
                before = kept.get(r["batch_id"], (0.0, 0.0, 0))[2]
                rows_kept = before + (r["rows_kept"] or 0)
                kept[r["batch_id"]] = (r["started_at"].timestamp(), r["ended_at"].timestamp(), rows_kept)
        if self._trigger_s(operator) == inf:
            return None  # the first batches of a driver start everything: that they are slow does not tell that load rises
        came, interval = self._in[operator], self.interval
        done = done_rate(list(kept.values()), interval.start.timestamp(), interval.end.timestamp(), self.pipeline.trigger_s)
        return done if done and came and done < RISING * came else None

    def _share(self, edge: Edge) -> float | None:
        seen, arriving = self._flows[edge.name], self._out[edge.name]
        if seen is not None and seen.share is not None:
            return seen.share
        if arriving == 0.0:
            return self._keep(edge)[0]
        if seen is None or not arriving:
            return None
        if seen.kept_rate is not None:
            return seen.kept_rate / arriving
        return seen.kept / seen.read if seen.read else seen.keep

    def _keep(self, edge: Edge) -> tuple[float, int | None]:
        """In force at the last batch; without one, as it was last set."""
        if (seen := self._flows[edge.name]) is not None:
            return seen.keep, seen.decision_id
        setting = self.stored.keeps.get((self.name, edge.name))
        return (setting["keep"], setting["decision_id"]) if setting else (1.0, None)

    # -- instances

    def _gone(self, application: str) -> bool:
        """No driver is there: none has ever started, or the newest has ended or gives no sign of life, and what it left behind
        says nothing of the next one."""
        known = self.stored.executors.get((self.name, application), ())
        if not known:
            return True
        beat, state = known[0]["beat"], known[0]["state"]
        due = min(self.interval.start, self.interval.end - timedelta(seconds=2 * self.policy.heartbeat_s))
        return beat < due or (state in ENDED and beat <= self.interval.end)

    def _expected(self, application: str, declared: int) -> int:
        """Executors that should be there: as a plan has made it, and while one is under way, as many as there are within it."""
        plan = self.stored.plans.get((self.name, application))
        return min(max(len(self._live(application)), plan["least"]), plan["most"]) if plan else declared

    def _live(self, application: str) -> list[Row]:
        if self._gone(application):
            return []
        return [r for r in self.stored.executors.get((self.name, application), ()) if r["node"] is not None]

    def _is_warming(self, application: str) -> bool:
        """Until a driver starts; then until all its operators have their minimum accuracy, `qod_warm_up_s` at most. One that has
        rehearsed is warm from the beginning."""
        if self._gone(application):
            return True
        driver, plan = self.stored.executors[self.name, application][0], self.stored.plans.get((self.name, application))
        rehearsed = plan is not None and plan["rehearsed"] == driver["generation"] and bool(self._live(application))
        if rehearsed or _age(driver["started_at"], self.interval) >= self.policy.qod_warm_up_s:
            return False
        seen = accuracies(self.pipeline, {e: None if s is None else min(s, 1.0) for e, s in self._shares.items()})
        floors = floors_of(self.pipeline)
        members = self.pipeline.application(application).operators
        return any((a := seen[o]) is None or a < floors[o] - 1e-9 for o in members) or not self._live(application)

    def instances(self) -> list[InstanceRow]:
        found = []
        for application in self.pipeline.applications:
            live, taken = self._live(application.name), self.stored.taken_ms.get((self.name, application.name), {})
            busy = {o: self._busy_ms(o) for o in application.operators}
            for executor in live:
                parts = split_cpu(application.operators, executor["executor"], taken, busy)
                for operator in application.operators:
                    rate, done = self._in[operator], self._done_rate(operator)
                    found.append(
                        InstanceRow(
                            pipeline=self.name,
                            operator=operator,
                            executor=executor["executor"],
                            node=executor["node"],
                            in_rate=None if rate is None else rate / len(live),
                            cpu=None if executor["cpu"] is None else executor["cpu"] * parts[operator],
                            done_rate=None if done is None else done / len(live),
                            warming=self._warming[application.name],
                            age_s=_age(executor["newest"], self.interval),
                            ahead_s=executor["ahead_s"],
                        )
                    )
        return _level(found)

    def _busy_ms(self, operator: str) -> float:
        inside = [b for b in _batches(self.stored.batches.get((self.name, operator), ())) if b["ended_at"] > self.interval.start]
        return float(sum(b["add_batch_ms"] or 0 for b in inside))

    # -- rows

    def operators(self) -> list[OperatorRow]:
        found = []
        for application in self.pipeline.applications:
            for name in application.operators:
                batches = _batches(self.stored.batches.get((self.name, name), ()))
                arriving = [self._out[e.name] for e in self.pipeline.inputs(name)]
                known = [rate for rate in arriving if rate is not None]
                share = None if None in arriving or self._in[name] is None else _ratio(self._in[name], sum(known))
                outputs = [self._out[e.name] for e in self.pipeline.outputs(name)]
                found.append(
                    OperatorRow(
                        pipeline=self.name,
                        operator=name,
                        application=application.name,
                        declared=self._expected(application.name, application.executors),
                        measured=len(self._live(application.name)),
                        warming=self._warming[application.name],
                        share=share,
                        out_rate=outputs[0] if outputs else None,
                        batches=sum(b["ended_at"] > self.interval.start for b in batches),
                        age_s=_age(batches[-1]["ended_at"], self.interval) if batches else None,
                        ahead_s=max((b["ahead_s"] for b in batches), default=0.0),
                    )
                )
        return found

    def edges(self) -> list[EdgeRow]:
        found = []
        for edge in self.pipeline.edges:
            seen, (keep, decision) = self._flows[edge.name], self._keep(edge)
            outside = self.stored.arrivals.get(edge.topic) if edge.producer is None else None
            found.append(
                EdgeRow(
                    pipeline=self.name,
                    edge=edge.name,
                    producer=edge.producer,
                    topic=edge.topic,
                    consumer=edge.consumer,
                    out_rate=self._out[edge.name],
                    share=self._shares[edge.name],
                    keep=keep,
                    decision_id=decision,
                    lag=_lag(seen, self._out[edge.name]),
                    age_s=max(0.0, self.interval.end.timestamp() - outside.newest) if outside else None,
                    ahead_s=self.stored.ahead.get(edge.topic) if edge.producer is None else None,
                )
            )
        return found


def floors_of(pipeline: Pipeline) -> dict[str, float]:
    """(2) The minimum accuracy of every operator: the highest floor of the queries below it."""
    floors: dict[str, float] = {}
    for name in reversed(_sources_first(pipeline)):
        query = pipeline.operator(name).query
        below = [floors[e.consumer] for e in pipeline.outputs(name)]
        floors[name] = max([query.min_accuracy if query and not below else 0.0, *below])
    return floors


def _sources_first(pipeline: Pipeline) -> list[str]:
    ordered: list[str] = []

    def visit(name: str) -> None:
        if name not in ordered:
            for edge in pipeline.inputs(name):
                if edge.producer is not None:
                    visit(edge.producer)
            ordered.append(name)

    for operator in pipeline.operators:
        visit(operator.name)
    return ordered


def _level(instances: list[InstanceRow]) -> list[InstanceRow]:
    """The instances of an operator with the CPU they have on average.

    Spark hands a task to whichever executor is free, so their parts of one batch differ by chance and by what else their node
    does; the paper takes the one with the least input for typical, and their inputs are taken to be alike."""
    used: dict[str, list[float]] = defaultdict(list)
    for i in instances:
        if i.cpu is not None:
            used[i.operator].append(i.cpu)
    return [i if i.cpu is None else replace(i, cpu=sum(used[i.operator]) / len(used[i.operator])) for i in instances]


def _edge_batches(found: Sequence[Row], edge: str) -> list[EdgeBatch]:
    return [
        EdgeBatch(
            checkpoint=r["checkpoint"],
            batch_id=r["batch_id"],
            started_at=r["started_at"].timestamp(),
            ended_at=r["ended_at"].timestamp(),
            read=r["rows_read"],
            kept=r["rows_kept"],
            keep=r["keep"],
            lag=r["lag_rows"],
            decision_id=r["decision_id"],
            partitions=r["partitions"],
            end_offset=r["end_offset"],
            latest_offset=r["latest_offset"],
        )
        for r in found
        if r["edge"] == edge
    ]


def _batches(found: Sequence[Row]) -> list[Row]:
    """Each batch of an operator once, of its newest checkpoint."""
    newest = found[-1]["checkpoint"] if found else 0
    return list({r["batch_id"]: r for r in found if r["checkpoint"] == newest}.values())


def _lag(seen: Flow | None, arriving: float | None) -> int | None:
    """Rows left behind by the last batch. Spark runs one whenever there is something to read: no arrivals, no batch, no lag."""
    if seen is not None:
        return seen.lag
    return 0 if arriving == 0.0 else None


def _ratio(part: float | None, whole: float) -> float | None:
    if part is None:
        return None
    return part / whole if whole > 0 else 1.0


def _age(then: datetime, interval: Interval) -> float:
    return max(0.0, (interval.end - then).total_seconds())
