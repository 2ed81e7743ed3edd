"""The demo's course: services up, pipeline running, a rush hour that stays until it is carried, drain, verdict."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from types import FrameType

import psutil
from rich.console import Console
from rich.table import Table

from spillway.demo.control import controlled
from spillway.demo.flood import pour, warm
from spillway.demo.hand import Hand
from spillway.demo.lasting import Lasting
from spillway.demo.line import Line, LineFailed, Playing
from spillway.demo.lineage import compare, edges_before, good_events
from spillway.demo.topics import Ends
from spillway.demo.verdict import Measured, QueryFlow, Row, verdict
from spillway.embedded import EmbeddedError, Stack
from spillway.embedded.__main__ import ALL, Follow
from spillway.inject.scenario import load as load_scenario
from spillway.policy import Policy
from spillway.store import pipelines, session
from spillway.store.errors import StoreError

ROOT = Path(__file__).resolve().parents[3]
PIPELINE, HEAVY, OVERLOAD = "taxi", "heavy", 2.0
POURED = 3.0
"""A burst is written so many times as quickly while nothing runs yet: it is there before the first batch."""
POLICY = ROOT / "policies" / "elastic.yaml"


@dataclass(slots=True)
class Memory:
    """The largest sum of proportional memory of everything the run started, looked at now and then."""

    stack: Stack
    peak_mb: float = 0.0
    stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        while not self.stop.wait(10.0):
            total = 0
            for process in self.stack.processes():
                with contextlib.suppress(psutil.Error, OSError):
                    total += process.memory_full_info().pss
            self.peak_mb = max(self.peak_mb, total / 2**20)


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """How things stood when the rush was played."""

    asked: datetime
    """When the pipeline was asked to run."""
    since: datetime
    start: Ends


def run(*, keep_up: bool, home: Path | None = None) -> int:
    plain = Console(highlight=False)
    console = plain if plain.is_terminal else Console(highlight=False, width=150)
    stack = Stack(home=home, services=ALL)
    for ending in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(ending) is not signal.SIG_IGN:  # under nohup
            signal.signal(ending, _interrupt)
    _end_with_make()
    try:
        console.rule("services")
        os.environ.setdefault("SPILLWAY_POLICY", str(POLICY))
        stack.up(Follow(), bound=not keep_up)
        os.environ.update(stack.env)
        user, password = stack.airflow_login
        console.print(f"Airflow  {stack.env['SPILLWAY_AIRFLOW']}   user {user}   password {password}")
        console.print(f"Spark    {stack.env['SPILLWAY_SPARK_UI']}")
        good = _course(stack, console)
    except (EmbeddedError, LineFailed) as error:
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


def _end_with_make() -> None:
    """A make that is killed takes along nothing that it started."""
    make = os.getppid()

    def watch() -> None:
        while os.getppid() == make:
            time.sleep(1.0)
        os.kill(os.getpid(), signal.SIGTERM)

    if "MAKELEVEL" in os.environ:
        threading.Thread(target=watch, daemon=True).start()


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
    began = time.monotonic()

    def say(text: str) -> None:
        console.print(f"[{time.monotonic() - began:5.0f}s] {text}", markup=False)

    console.rule("pipeline")
    line = Line(ROOT / "pipelines" / f"{PIPELINE}.yaml", stack.env["SPILLWAY_KAFKA"], say, "demo")
    scenario = load_scenario(ROOT / "scenarios" / "long_rush.yaml")
    before, hand = line.topics.ends(_all_topics(line)), Hand(say, PIPELINE)
    say("Airflow's DAG spillway_streams starts what is declared; a burst waits for it …")
    asked = line.ask("off")
    burst = pour(line, scenario, HEAVY, hand, faster=POURED)
    line.await_start()
    say("the burst makes everything warm …")
    guess = warm(line, scenario, HEAVY, hand, burst)
    line.await_letters(asked, before)
    begun = Begun(asked=asked, since=line.now(), start=line.topics.ends(_all_topics(line)))
    rushing = Lasting(
        line=line, shape=scenario, operator=HEAVY, overload=OVERLOAD, cycle_s=Policy.load().qod_cycle_s, carries=guess
    )

    console.rule(f"rush hour: up to {OVERLOAD:g} times what the heavy query carries, with Airflow's DAGs in control")
    memory = Memory(stack)
    threading.Thread(target=memory.run, daemon=True).start()
    try:
        playing = rushing.watch()
    finally:
        memory.stop.set()

    console.rule("drain")
    ends = line.topics.ends([e.topic for e in line.pipeline.edges if e.producer is None])
    line.drain()
    line.await_letters(begun.since, begun.start)
    measured = _measure(line, rushing, playing, begun, ends, memory.peak_mb, hand)
    line.stop()
    return _print_verdict(console, measured)


def _all_topics(line: Line) -> list[str]:
    """Sources, outputs and dead letters."""
    spec = line.pipeline
    dead = [spec.dead_letter_topic(o.name) for o in spec.operators]
    return [*(e.topic for e in spec.edges if e.producer is None), *_outputs(line).values(), *dead]


def _outputs(line: Line) -> dict[str, str]:
    return {q.name: q.output.topic for q in line.pipeline.queries() if q.output is not None and q.output.topic}


def _measure(line: Line, rushing: Lasting, playing: Playing, begun: Begun, ends: Ends, memory_mb: float, hand: Hand) -> Measured:
    report, spec = playing.ended(), line.pipeline
    edges = {r["edge"]: r for r in line.rows("demo_edges", since=begun.since)}
    batches = line.rows("demo_batches", since=begun.since)
    cycle_s = Policy.load().qod_cycle_s
    windows = playing.windows(cycle_s, line.now())
    decisions = line.rows("demo_decisions", since=begun.since)
    sources = [e for e in spec.edges if e.producer is None]
    arrived = sum(ends[e.topic].get(p, 0) - begun.start[e.topic].get(p, 0) for e in sources for p in ends[e.topic])
    letters = [
        key
        for topic in (spec.dead_letter_topic(o.name) for o in spec.operators)
        for key in line.topics.keys(topic, begun.start[topic])
    ]
    good = good_events([e.topic for e in sources], begun.start, ends, set(letters))
    flows, outputs = {}, _outputs(line)
    for query in spec.queries():
        promise, topic = query.query, outputs[query.name]
        flows[query.name] = QueryFlow(
            floor=promise.min_accuracy if promise else 0.0,
            priority=promise.priority if promise else 0,
            arrived=len(good),
            output=compare(
                line.topics.lineages(topic, begun.start[topic]),
                good,
                shed=any(edges[e.name]["least_keep"] < 1.0 for e in edges_before(spec, query.name) if e.name in edges),
                kept=sum(edges[e.name]["rows_kept"] for e in spec.inputs(query.name) if e.name in edges),
            ),
        )
    return Measured(
        asked=report.asked,
        delivered=arrived,
        garbage=sum(t.garbage for t in report.topics),
        read=sum(edges[e.name]["rows_read"] for e in sources if e.name in edges),
        found_bad=sum(edges[e.name]["rows_bad"] for e in sources if e.name in edges),
        shed_at_sources=any(edges[e.name]["least_keep"] < 1.0 for e in sources if e.name in edges),
        dead_letters=len(letters),
        lag=line.lags(),
        peak_lag={name: r["peak_lag"] for name, r in edges.items()},
        queries=flows,
        hand=hand.kept(),
        control=controlled(
            spec,
            playing.scenario,
            rushing.within(playing),
            line.course(begun.since, playing),
            line.settings(begun.since, playing),
            cycle_s,
            height=rushing.height,
        ),
        elastic=rushing.measured(playing, begun.since),
        windows=len(windows),
        decided=len({d["interval_end"].timestamp() for d in decisions}.intersection(windows)),
        refused=sum(d["status"] in ("refused", "failed") for d in decisions),
        batches=sum(b["batches"] for b in batches),
        missing_batches=sum(b["missing"] for b in batches),
        metrics_dropped=max((b["dropped"] for b in batches), default=0),
        memory_mb=memory_mb,
        actions=tuple(f"{r['actor']}: {r['text']}" for r in line.rows("demo_actions", since=begun.asked)),
    )


def _print_verdict(console: Console, measured: Measured) -> bool:
    found: list[Row] = verdict(measured)
    console.rule("what the controllers did")
    for action in measured.actions:
        console.print(f"  {action}", markup=False)
    table = Table("", "what", "measured", "promised", title="Verdict")
    for row in found:
        table.add_row("[green]ok[/]" if row.good else "[red]NO[/]", row.what, row.measured, row.promised)
    console.print(table)
    good = all(r.good for r in found)
    console.print("[bold green]All promises kept.[/]" if good else "[bold red]A promise was broken.[/]")
    return good
