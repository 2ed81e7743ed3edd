"""The demo's course: services up, pipeline running, rush hour, a keep by hand, drain, verdict."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

from spillway.demo.hand import EDGE, KEEP, Hand
from spillway.demo.lineage import compare, edges_before, good_events
from spillway.demo.topics import Ends, Topics, await_letters
from spillway.demo.verdict import HandKeep, Measured, QueryFlow, Row, verdict
from spillway.embedded import EmbeddedError, Stack
from spillway.embedded.__main__ import ALL, Follow
from spillway.inject.player import play
from spillway.inject.profiles import Constant
from spillway.inject.report import Report, Second
from spillway.inject.scenario import Scenario
from spillway.inject.scenario import load as load_scenario
from spillway.model.topology import Pipeline
from spillway.store import pipelines, session, settings
from spillway.store.errors import StoreError
from spillway.store.promises import accuracies
from spillway.store.queries import rows
from spillway.store.status import EdgeStatus, PipelineStatus, status
from spillway.topology import check_files

ROOT = Path(__file__).resolve().parents[3]
PIPELINE = "taxi"
START_LIMIT_S, WARM_LIMIT_S, DRAIN_LIMIT_S, LETTERS_LIMIT_S = 150.0, 150.0, 150.0, 60.0
WARM_RATE, WARM_BATCHES = 40.0, 4
SHOW_EVERY_S = 5.0


class DemoFailed(RuntimeError):
    """One sentence: what did not happen, and where to look."""


@dataclass(slots=True)
class Watch:
    """What the player and the memory sampler see while the scenario runs."""

    rate: float = 0.0
    memory_mb: float = 0.0
    report: Report | None = None
    error: str = ""
    stop: threading.Event = field(default_factory=threading.Event)

    def second(self, _: int, seconds: Any) -> None:
        found: list[Second] = list(seconds)
        self.rate = float(sum(s.sent for s in found))


def run(*, keep_up: bool, home: Path | None = None) -> int:
    plain = Console(highlight=False)
    console = plain if plain.is_terminal else Console(highlight=False, width=150)
    stack = Stack(home=home, services=ALL)
    for ending in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(ending) is not signal.SIG_IGN:  # under nohup
            signal.signal(ending, _interrupt)
    try:
        console.rule("services")
        stack.up(Follow(), bound=not keep_up)
        os.environ.update(stack.env)
        user, password = stack.airflow_login
        console.print(f"Airflow  {stack.env['SPILLWAY_AIRFLOW']}   user {user}   password {password}")
        console.print(f"Spark    {stack.env['SPILLWAY_SPARK_UI']}")
        good = _course(stack, console)
    except (EmbeddedError, DemoFailed) as error:
        console.print(f"[red]{error}[/]")
        _let_go(keep_up)
        return 1
    except KeyboardInterrupt:
        with contextlib.suppress(OSError):
            console.print("Interrupted.")
        _let_go(keep_up)
        return 130
    finally:
        _leave(stack, console)
    return 0 if good else 1


def _interrupt(_: int, __: FrameType | None) -> None:
    raise KeyboardInterrupt


def _let_go(keep_up: bool) -> None:
    """A demo cut short asks for nothing any more, or the next `make up` would start its pipeline again."""
    if not keep_up:
        with contextlib.suppress(StoreError), session("control") as connection:
            pipelines.set_desired(connection, PIPELINE, "stopped", "demo")


def _leave(stack: Stack, console: Console) -> None:
    """Stop what was started for the demo alone, also when nobody is left to read what is printed."""
    if not stack.bound():
        if stack.alive():
            console.print("The services stay up: `make status` shows them, `make down` stops them.")
        return
    try:
        console.rule("stopping")
        stack.down(Follow(stopping=True))
        console.print("Nothing of this run is left running.")
    except OSError:
        stack.down()


def _course(stack: Stack, console: Console) -> bool:
    console.rule("pipeline")
    pipeline = _apply(console)
    scenario = load_scenario(ROOT / "scenarios" / "rush_hour.yaml")
    topics = Topics(stack.env["SPILLWAY_KAFKA"])
    sources = [e.topic for e in pipeline.edges if e.producer is None]
    outputs = {q.name: q.output.topic for q in pipeline.queries() if q.output is not None and q.output.topic}
    dead = [pipeline.dead_letter_topic(o.name) for o in pipeline.operators]
    with session("control") as connection:
        settings.clear(connection, pipeline.name, "demo")
        pipelines.set_desired(connection, pipeline.name, "running", "demo")
        asked = _now(connection)
    console.print("Airflow's DAG spillway_streams starts what is declared …")
    _wait(
        console,
        pipeline,
        lambda s: s.settled,
        START_LIMIT_S,
        "the applications did not start: see `make logs S=airflow-scheduler`",
    )
    _warm_up(console, pipeline, scenario, stack.env["SPILLWAY_KAFKA"])
    _drain(console, pipeline, topics, time.monotonic())
    start = topics.ends([*sources, *outputs.values(), *dead])
    with session("read") as connection:
        since = _now(connection)

    console.rule("rush hour")
    watch, began = Watch(), time.monotonic()
    player = threading.Thread(target=_play, args=(scenario, stack.env["SPILLWAY_KAFKA"], watch), daemon=True)
    sampler = threading.Thread(target=_sample_memory, args=(stack, watch), daemon=True)
    player.start()
    sampler.start()
    hand = Hand(console, pipeline.name)
    try:
        while player.is_alive():
            player.join(SHOW_EVERY_S)
            elapsed = time.monotonic() - began
            hand.turn(elapsed)
            _show(console, pipeline, topics, elapsed, watch.rate)
    finally:
        watch.stop.set()
    decision = hand.decision
    if watch.report is None or decision is None:
        raise DemoFailed(f"The injector stopped: {watch.error or 'it gave no report'}.")

    console.rule("drain")
    ends = topics.ends(sources)
    _drain(console, pipeline, topics, began, hand)
    await_letters(
        lambda: sum(r["rows_bad"] for r in _edges(pipeline, since)),
        lambda: sum(len(topics.keys(topic, start[topic])) for topic in dead),
        LETTERS_LIMIT_S,
    )
    measured = _measure(
        pipeline, topics, watch, asked=asked, since=since, start=start, ends=ends, decision=decision, outputs=outputs, dead=dead
    )
    with session("control") as connection:
        pipelines.set_desired(connection, pipeline.name, "stopped", "demo")
    _wait(console, pipeline, lambda s: s.settled, 60.0, "the applications did not stop")
    return _print_verdict(console, measured)


def _apply(console: Console) -> Pipeline:
    file = ROOT / "pipelines" / f"{PIPELINE}.yaml"
    checked = check_files([file])
    if checked.problems:
        raise DemoFailed("; ".join(str(p) for p in checked.problems))
    pipeline = checked.pipelines[0]
    with session("control") as connection:
        console.print(str(pipelines.apply(connection, pipeline, checked.files[0].source, "demo")))
    return pipeline


def _now(connection: Any) -> datetime:
    with connection.cursor() as cursor:
        cursor.execute("select now()")
        found: datetime = cursor.fetchone()[0]
        return found


def _status(pipeline: Pipeline) -> PipelineStatus:
    with session("read") as connection:
        return status(connection, pipeline.name)[0]


def _wait(console: Console, pipeline: Pipeline, done: Any, limit_s: float, otherwise: str) -> None:
    began, said = time.monotonic(), ""
    while True:
        now = _status(pipeline)
        text = ", ".join(f"{a.application}: {a.state}" for a in now.applications)
        if text != said:
            console.print(f"[{time.monotonic() - began:5.1f}s] {text}")
            said = text
        if done(now):
            return
        if time.monotonic() - began > limit_s:
            raise DemoFailed(f"After {limit_s:.0f} s {otherwise}.")
        time.sleep(1.0)


def _play(scenario: Scenario, bootstrap: str, watch: Watch) -> None:
    try:
        watch.report = play(scenario, bootstrap, on_second=watch.second, stop_event=watch.stop)
    except Exception as error:
        watch.error = str(error)


def _sample_memory(stack: Stack, watch: Watch) -> None:
    """The largest sum of proportional memory of everything the run started."""
    while not watch.stop.wait(10.0):
        total = 0
        for process in stack.processes():
            with contextlib.suppress(psutil.Error, OSError):
                total += process.memory_full_info().pss
        watch.memory_mb = max(watch.memory_mb, total / 2**20)


def _show(console: Console, pipeline: Pipeline, topics: Topics, elapsed: float, rate: float) -> None:
    now, lags = _status(pipeline), _lags(pipeline, topics)
    edges = {e.edge: e for a in now.applications for e in a.edges}
    reached = accuracies(pipeline, {name: e.keep for name, e in edges.items()})
    parts = []
    for query in pipeline.queries():
        edge = next(edges[e.name] for e in pipeline.inputs(query.name))
        accuracy = reached.get(query.name)
        floor = query.query.min_accuracy if query.query else 0.0
        lag = sum(lags[e.name] for e in edges_before(pipeline, query.name))
        reaches = "–" if accuracy is None else f"{accuracy:.2f}"
        parts.append(f"{query.name}: lag {lag:>6,} keep {_keep(edge)} accuracy {reaches} (floor {floor:g})")
    console.print(f"[{elapsed:5.0f}s] in {rate:>6,.0f}/s   " + "   ".join(parts))


def _keep(edge: EdgeStatus) -> str:
    """As the last batch had it, and what the next one will have."""
    if edge.keep is None:
        return "–"
    return f"{edge.keep:.2f}" if abs(edge.keep - edge.keep_set) < 1e-9 else f"{edge.keep:.2f}→{edge.keep_set:.2f}"


def _edges(pipeline: Pipeline, since: datetime) -> list[dict[str, Any]]:
    with session("read") as connection:
        return rows(connection, "demo_edges", pipeline=pipeline.name, since=since)


def _read_to(pipeline: Pipeline) -> dict[str, dict[int, int]]:
    with session("read") as connection:
        found: dict[str, dict[int, int]] = {}
        for r in rows(connection, "demo_ends", pipeline=pipeline.name):
            found.setdefault(r["edge"], {})[r["partition"]] = r["end_offset"]
    return found


def _lags(pipeline: Pipeline, topics: Topics) -> dict[str, int]:
    """Rows between where each edge was read to and where its topic ends now."""
    ends, read = topics.ends([e.topic for e in pipeline.edges]), _read_to(pipeline)
    return {e.name: sum(max(0, end - read.get(e.name, {}).get(p, 0)) for p, end in ends[e.topic].items()) for e in pipeline.edges}


def _warm_up(console: Console, pipeline: Pipeline, scenario: Scenario, bootstrap: str) -> None:
    """A trickle of events until every operator has run a few batches: the first ones start JVMs and Python processes."""
    trickle = replace(
        scenario,
        name="warm-up",
        duration_s=WARM_LIMIT_S,
        pipelines=(),
        topics=tuple(replace(t, rate=Constant(WARM_RATE), garbage=0.0) for t in scenario.topics),
    )
    console.print(
        f"Warming up: {WARM_RATE:g} events a second into each topic, until every operator has run {WARM_BATCHES} batches …"
    )
    watch, began = Watch(), time.monotonic()
    with session("read") as connection:
        since = _now(connection)
    player = threading.Thread(target=_play, args=(trickle, bootstrap, watch), daemon=True)
    player.start()
    try:
        while player.is_alive():
            player.join(1.0)
            with session("read") as connection:
                ran = {r["operator"]: r["batches"] for r in rows(connection, "demo_batches", pipeline=pipeline.name, since=since)}
            if all(ran.get(o.name, 0) >= WARM_BATCHES for o in pipeline.operators):
                console.print(f"[{time.monotonic() - began:5.1f}s] every operator has run {WARM_BATCHES} batches")
                return
    finally:
        watch.stop.set()
        player.join(30.0)
    raise DemoFailed(f"After {WARM_LIMIT_S:.0f} s not every operator had run {WARM_BATCHES} batches: see `spillway events`.")


def _drain(console: Console, pipeline: Pipeline, topics: Topics, began: float, hand: Hand | None = None) -> None:
    """Until everything written is read, or the time for it is over."""
    deadline, shown = time.monotonic() + DRAIN_LIMIT_S, time.monotonic()
    while any(_lags(pipeline, topics).values()) and time.monotonic() < deadline:
        if time.monotonic() - shown >= SHOW_EVERY_S:
            shown = time.monotonic()
            if hand is not None:
                hand.turn(shown - began)
            _show(console, pipeline, topics, shown - began, 0.0)
        time.sleep(1.0)
    if hand is not None:
        hand.release()


def _measure(
    pipeline: Pipeline,
    topics: Topics,
    watch: Watch,
    *,
    asked: datetime,
    since: datetime,
    start: Ends,
    ends: Ends,
    decision: int,
    outputs: dict[str, str],
    dead: list[str],
) -> Measured:
    report = watch.report
    assert report is not None
    edges = {r["edge"]: r for r in _edges(pipeline, since)}
    with session("read") as connection:
        batches = rows(connection, "demo_batches", pipeline=pipeline.name, since=since)
        under = rows(connection, "demo_decision", pipeline=pipeline.name, edge=EDGE, decision_id=decision)
        actions = tuple(
            f"{r['actor']}: {r['text']}" for r in rows(connection, "demo_actions", pipeline=pipeline.name, since=asked)
        )
    sources = [e for e in pipeline.edges if e.producer is None]
    arrived = sum(ends[e.topic].get(p, 0) - start[e.topic].get(p, 0) for e in sources for p in ends[e.topic])
    letters = [key for topic in dead for key in topics.keys(topic, start[topic])]
    good = good_events([e.topic for e in sources], start, ends, set(letters))
    flows = {}
    for query in pipeline.queries():
        promise, topic = query.query, outputs[query.name]
        flows[query.name] = QueryFlow(
            floor=promise.min_accuracy if promise else 0.0,
            priority=promise.priority if promise else 0,
            arrived=len(good),
            output=compare(
                topics.lineages(topic, start[topic]),
                good,
                shed=any(edges[e.name]["least_keep"] < 1.0 for e in edges_before(pipeline, query.name) if e.name in edges),
                kept=sum(edges[e.name]["rows_kept"] for e in pipeline.inputs(query.name) if e.name in edges),
            ),
        )
    first = next((i for i, b in enumerate(under) if b["with_it"]), None)
    with_it = [b for b in under if b["with_it"]]
    return Measured(
        asked=report.asked,
        delivered=arrived,
        garbage=sum(t.garbage for t in report.topics),
        read=sum(edges[e.name]["rows_read"] for e in sources if e.name in edges),
        dead_letters=len(letters),
        lag=_lags(pipeline, topics),
        peak_lag={name: r["peak_lag"] for name, r in edges.items()},
        queries=flows,
        hand=HandKeep(
            edge=EDGE,
            keep=KEEP,
            rows_read=sum(b["rows_read"] for b in with_it),
            rows_kept=sum(b["rows_kept"] for b in with_it),
            batches_until=None if first is None else first + 1,
        ),
        batches=sum(b["batches"] for b in batches),
        missing_batches=sum(b["missing"] for b in batches),
        metrics_dropped=max((b["dropped"] for b in batches), default=0),
        memory_mb=watch.memory_mb,
        actions=actions,
    )


def _print_verdict(console: Console, measured: Measured) -> bool:
    found: list[Row] = verdict(measured)
    console.rule("what the controllers did")
    for action in measured.actions:
        console.print(f"  {action}")
    table = Table("", "what", "measured", "promised", title="Verdict")
    for row in found:
        table.add_row("[green]ok[/]" if row.good else "[red]NO[/]", row.what, row.measured, row.promised)
    console.print(table)
    good = all(r.good for r in found)
    console.print("[bold green]All promises kept.[/]" if good else "[bold red]A promise was broken.[/]")
    return good
