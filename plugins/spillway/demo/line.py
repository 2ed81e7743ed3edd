"""The line under a scenario: a pipeline started, fed, drained and looked at. For the demo and for benches."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spillway.demo.course import Batch, Set, windows
from spillway.demo.lineage import edges_before
from spillway.demo.topics import Ends, Topics, await_letters
from spillway.inject.player import PlayOptions, play
from spillway.inject.report import Report, Second
from spillway.inject.scenario import Scenario
from spillway.model.topology import Pipeline
from spillway.store import pipelines, rescale, session, settings
from spillway.store.promises import accuracies
from spillway.store.queries import rows
from spillway.store.status import EdgeStatus, PipelineStatus, status
from spillway.topology import check_files

if TYPE_CHECKING:
    from psycopg2.extensions import connection as Connection

ROOT = Path(__file__).resolve().parents[3]
START_LIMIT_S, STOP_LIMIT_S, DRAIN_LIMIT_S, LETTERS_LIMIT_S = 150.0, 60.0, 150.0, 60.0
SHOW_EVERY_S = 5.0


class LineFailed(RuntimeError):
    """One sentence: what did not happen, and where to look."""


@dataclass(slots=True)
class Playing:
    """A scenario that is being played by a thread of its own."""

    scenario: Scenario
    began: float
    """Unix time at which it began: known to a tenth of a second once a few seconds were played."""
    in_control: bool = False
    """Whether what is decided is applied."""
    rate: float = 0.0
    """Events in the last whole second."""
    ended_at: float | None = None
    """Unix time at which it was told to end."""
    report: Report | None = None
    error: str = ""
    stop: threading.Event = field(default_factory=threading.Event)
    thread: threading.Thread = field(default_factory=threading.Thread)

    def second(self, number: int, seconds: Any) -> None:
        """Told of a second once it is over: never too early, now and then a little late."""
        found: list[Second] = list(seconds)
        self.rate = float(sum(s.sent for s in found))
        began = time.time() - (number + 1)
        self.began = began if number == 0 else min(self.began, began)

    @property
    def elapsed_s(self) -> float:
        return time.time() - self.began

    def ended(self) -> Report:
        """Its report, once it has ended."""
        self.thread.join()
        if self.report is None:
            raise LineFailed(f"The injector stopped: {self.error or 'it gave no report'}.")
        return self.report

    def windows(self, cycle_s: float, now: datetime) -> list[float]:
        """Ends of the windows within what was played on which a decision has to be there by now: one takes a while."""
        return windows(self.began, min(self.began + self.scenario.duration_s, now.timestamp() - cycle_s), cycle_s)

    def end(self) -> None:
        self.ended_at = self.ended_at or time.time()
        self.stop.set()
        self.thread.join(30.0)


class Line:
    """One pipeline on services that are up and named in the environment."""

    def __init__(self, file: Path, bootstrap: str, say: Callable[[str], None], actor: str) -> None:
        checked = check_files([file])
        if checked.problems:
            raise LineFailed("; ".join(str(p) for p in checked.problems))
        self.pipeline: Pipeline = checked.pipelines[0]
        self.topics = Topics(bootstrap)
        self.say = say
        self._bootstrap, self._actor = bootstrap, actor
        source = checked.files[0].source
        with session("control") as connection:
            if (rescaled := self._as_it_is(connection)) is not None:
                pipelines.apply(connection, rescaled, source, actor)
            say(str(pipelines.apply(connection, self.pipeline, source, actor)))

    def _as_it_is(self, connection: Connection) -> Pipeline | None:
        """The pipeline with the executors and nodes that plans have given its applications; None where they are as declared.

        Applying a file changes these only where it says something else than before, so this is applied first to go back."""
        has = {r["application"]: r for r in rows(connection, "rescale_applications", pipeline=self.pipeline.name)}
        found = tuple(
            replace(a, executors=has[a.name]["executors"], node=has[a.name]["node"]) if a.name in has else a
            for a in self.pipeline.applications
        )
        return replace(self.pipeline, applications=found) if found != self.pipeline.applications else None

    # -- running

    def ask(self, mode: str) -> datetime:
        """Asks for the pipeline to run. Returns when."""
        self.clear()
        self.mode(mode)
        with session("control") as connection:
            pipelines.set_desired(connection, self.pipeline.name, "running", self._actor)
        return self.now()

    def await_start(self) -> None:
        """Until all its applications run."""
        self.wait(START_LIMIT_S, "the applications did not start: see `make logs S=airflow-scheduler`")

    def start(self, mode: str) -> datetime:
        asked = self.ask(mode)
        self.await_start()
        return asked

    def stop(self) -> None:
        with session("control") as connection:
            pipelines.set_desired(connection, self.pipeline.name, "stopped", self._actor)
        self.wait(STOP_LIMIT_S, "the applications did not stop")

    def mode(self, mode: str) -> None:
        with session("control") as connection:
            pipelines.set_mode(connection, self.pipeline.name, mode, self._actor)

    def hand_over(self, playing: Playing, after_s: float) -> None:
        """To the controller, once a whole cycle of what is played lies behind it: the flood before is not its business."""
        if not playing.in_control and playing.elapsed_s >= after_s:
            self.mode("apply")
            playing.in_control = True

    def clear(self) -> None:
        """Back to keeping everything."""
        with session("control") as connection:
            settings.clear(connection, self.pipeline.name, self._actor)

    def wait(self, limit_s: float, otherwise: str) -> None:
        """Until everything is as it was asked to be."""
        began, said = time.monotonic(), ""
        while True:
            now = self.status()
            text = ", ".join(f"{a.application}: {a.state}" for a in now.applications)
            if text != said:
                self.say(text)
                said = text
            if now.settled:
                return
            if time.monotonic() - began > limit_s:
                raise LineFailed(f"After {limit_s:.0f} s {otherwise}.")
            time.sleep(1.0)

    # -- feeding

    def play(self, scenario: Scenario, options: PlayOptions | None = None) -> Playing:
        playing = Playing(scenario=scenario, began=time.time())

        def run() -> None:
            try:
                playing.report = play(
                    scenario, self._bootstrap, on_second=playing.second, stop_event=playing.stop, options=options
                )
            except Exception as error:
                playing.error = str(error)

        playing.thread = threading.Thread(target=run, daemon=True)
        playing.thread.start()
        return playing

    def drain(self, limit_s: float = DRAIN_LIMIT_S) -> bool:
        """Until everything written is read, or the time for it is over."""
        deadline, shown = time.monotonic() + limit_s, time.monotonic()
        while left := any(self.lags().values()):
            if time.monotonic() > deadline:
                break
            if time.monotonic() - shown >= SHOW_EVERY_S:
                shown = time.monotonic()
                self.say(self.look())
            time.sleep(1.0)
        return not left

    def await_letters(self, since: datetime, start: Ends) -> bool:
        """Until there is a dead letter beyond `start` for every row found bad since then, or the time for it is over."""
        dead = [self.pipeline.dead_letter_topic(o.name) for o in self.pipeline.operators]
        return await_letters(
            lambda: sum(r["rows_bad"] for r in self.rows("demo_edges", since=since)),
            lambda: sum(len(self.topics.keys(topic, start[topic])) for topic in dead),
            LETTERS_LIMIT_S,
        )

    # -- looking

    def now(self) -> datetime:
        """By the clock of the store."""
        with session("read") as connection:
            found: datetime = rows(connection, "store_clock")[0]["now"]
            return found

    def rows(self, query: str, **parameters: Any) -> list[dict[str, Any]]:
        with session("read") as connection:
            return rows(connection, query, pipeline=self.pipeline.name, **parameters)

    def course(self, since: datetime, playing: Playing) -> list[Batch]:
        """Every batch that began since then, in the time of what is played."""
        return [
            Batch(
                edge=r["edge"],
                consumer=r["consumer"],
                began_s=r["started_at"].timestamp() - playing.began,
                ended_s=r["ended_at"].timestamp() - playing.began,
                read=r["rows_read"],
                kept=r["rows_kept"],
                keep=r["keep"],
                decision=r["decision_id"],
                lag=r["lag_rows"],
            )
            for r in self.rows("demo_course", since=since)
        ]

    def settings(self, since: datetime, playing: Playing) -> list[Set]:
        """Every keep that was set since then, in the time of what is played."""
        return [
            Set(edge=r["edge"], keep=r["keep"], decision=r["decision_id"], at_s=r["issued_at"].timestamp() - playing.began)
            for r in self.rows("demo_settings", since=since)
        ]

    def named(self, since: datetime, playing: Playing) -> list[tuple[float, tuple[str, ...]]]:
        """Whom each evaluation since then found to hold the pipeline back, in the time of what is played."""
        return [
            (r["interval_end"].timestamp() - playing.began, tuple(r["bottlenecks"]))
            for r in self.rows("demo_findings", since=since)
        ]

    def plan(self, since: datetime) -> rescale.Plan | None:
        """The first plan to rescale that was asked for since then."""
        with session("read") as connection:
            found = [p for p in rescale.plans(connection, self.pipeline.name) if p.requested_at >= since]
        return found[-1] if found else None

    def status(self) -> PipelineStatus:
        with session("read") as connection:
            return status(connection, self.pipeline.name)[0]

    def read_to(self) -> dict[str, dict[int, int]]:
        """By edge and partition, where reading stands."""
        found: dict[str, dict[int, int]] = {}
        for r in self.rows("demo_ends"):
            found.setdefault(r["edge"], {})[r["partition"]] = r["end_offset"]
        return found

    def lags(self) -> dict[str, int]:
        """Rows between where each edge was read to and where its topic ends now."""
        ends, read = self.topics.ends([e.topic for e in self.pipeline.edges]), self.read_to()
        return {
            e.name: sum(max(0, end - read.get(e.name, {}).get(p, 0)) for p, end in ends[e.topic].items())
            for e in self.pipeline.edges
        }

    def look(self) -> str:
        """What waits on the way to every query, its keep and its accuracy, in one line."""
        edges, lags = {e.edge: e for a in self.status().applications for e in a.edges}, self.lags()
        reached = accuracies(self.pipeline, {name: e.keep for name, e in edges.items()})
        parts = []
        for query in self.pipeline.queries():
            edge = next(edges[e.name] for e in self.pipeline.inputs(query.name))
            accuracy, floor = reached.get(query.name), query.query.min_accuracy if query.query else 0.0
            lag = sum(lags[e.name] for e in edges_before(self.pipeline, query.name))
            reaches = "–" if accuracy is None else f"{accuracy:.2f}"
            parts.append(f"{query.name}: lag {lag:>6,} keep {_keep(edge)} accuracy {reaches} (floor {floor:g})")
        return "   ".join(parts)


def _keep(edge: EdgeStatus) -> str:
    """As the last batch had it, and what the next one will have."""
    if edge.keep is None:
        return "–"
    return f"{edge.keep:.2f}" if abs(edge.keep - edge.keep_set) < 1e-9 else f"{edge.keep:.2f}→{edge.keep_set:.2f}"
