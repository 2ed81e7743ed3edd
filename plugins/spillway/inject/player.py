"""Plays a scenario: holds its rates, asks its pipelines to run and to stop, and reports what was achieved."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from spillway.inject.broker import BUFFER_MESSAGES, Broker, PlayError, Sender
from spillway.inject.pacing import Tick, ticks
from spillway.inject.pipelines import PipelineSwitch
from spillway.inject.profiles import due
from spillway.inject.report import Report, Second, TopicReport, second_row
from spillway.inject.scenario import Scenario, ScenarioError, load

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spillway.inject.events import Pool

LATE_END_S = 1.0
OnSecond = Callable[[int, Sequence[Second]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayOptions:
    tick_s: float = 0.02
    catch_up_s: float = 5.0
    """How far behind the player may be and still make up for it; what is older is given up and reported."""
    buffer_messages: int = BUFFER_MESSAGES
    delivery_timeout_s: float = 120.0
    """How long an event may wait for a broker that is away."""
    connect_timeout_s: float = 10.0
    """How long the broker may take to answer at the start."""
    start_ms: int | None = None
    """Time inside the events at the start of the scenario, in epoch milliseconds; None: now. Fix it for the same bytes."""


@dataclass(slots=True)
class _Count:
    """What has happened so far to one topic."""

    pool: Pool
    next_event: int = 0
    sent: int = 0
    garbage: int = 0
    given_up: int = 0
    sent_in: Counter[int] = field(default_factory=Counter)


def play(
    scenario: Scenario,
    bootstrap: str,
    *,
    on_second: OnSecond | None = None,
    stop_event: threading.Event | None = None,
    options: PlayOptions | None = None,
) -> Report:
    """Plays the scenario to its end, or until `stop_event` is set; raises `PlayError` when it cannot begin or go on."""
    stop = stop_event or threading.Event()
    return _Player(scenario, bootstrap, on_second, stop, options or PlayOptions()).run()


class _Player:
    def __init__(
        self, scenario: Scenario, bootstrap: str, on_second: OnSecond | None, stop: threading.Event, options: PlayOptions
    ) -> None:
        self.scenario, self.options, self.stop = scenario, options, stop
        self.on_second = on_second
        self.broker = Broker(bootstrap)
        partitions = self.broker.ensure_topics({t.topic: t.partitions for t in scenario.topics}, options.connect_timeout_s)
        self.sender = Sender(
            bootstrap,
            partitions=partitions,
            stopped=stop.is_set,
            buffer_messages=options.buffer_messages,
            delivery_timeout_s=options.delivery_timeout_s,
            ends=self.broker.ends,
        )
        self.switch = PipelineSwitch(scenario)
        self.counts = {t.topic: _Count(t.make_pool(scenario.seed)) for t in scenario.topics}
        self.lateness: list[float] = []
        self.late_in: dict[int, list[float]] = defaultdict(list)
        self.seconds: list[Second] = []
        self.known_ends: dict[str, int] = {}
        self.waiting_at: dict[int, int] = {}
        self.open_second: int | None = None

    def run(self) -> Report:
        before = self.broker.ends()
        if before is None:
            raise PlayError(f"The broker at {self.broker.bootstrap} does not tell its end offsets: check that it is healthy.")
        self.known_ends = before
        start_ms = self.options.start_ms if self.options.start_ms is not None else int(time.time() * 1000)
        began, began_cpu = time.monotonic(), time.process_time()
        second = 0
        for tick in ticks(
            duration_s=self.scenario.duration_s,
            tick_s=self.options.tick_s,
            catch_up_s=self.options.catch_up_s,
            clock=time.monotonic,
            wait=self.stop.wait,
        ):
            while int(tick.now_s) > second:
                self._end_second(second)
                second += 1
            self._play(tick, second, start_ms)
            self.switch.at(tick.begin_s)
            self.sender.poll()
            self._close_second()
        if not self.stop.wait(max(0.0, began + self.scenario.duration_s - time.monotonic())):
            self.switch.at(self.scenario.duration_s)
        ran_s, cpu_s = time.monotonic() - began, time.process_time() - began_cpu
        missing = self._flush()
        flushed_s = time.monotonic() - began
        self._end_second(second)
        self._close_second(wait_s=2.0)
        return self._report(before, missing, (ran_s, flushed_s, cpu_s))

    def _play(self, tick: Tick, second: int, start_ms: int) -> None:
        self.lateness.append(tick.late_s)
        self.late_in[second].append(tick.late_s)
        now_ms = start_ms + round(tick.begin_s * 1000)
        for load_ in self.scenario.topics:
            count = self.counts[load_.topic]
            first = count.next_event
            asked = due(load_.rate, tick.end_s) - first
            if asked <= 0:
                continue
            count.next_event += asked
            if tick.given_up:
                count.given_up += asked
                continue
            sent, at = 0, first
            for messages in count.pool.take(first, asked, now_ms):
                sent += self.sender.send(load_.topic, messages, at)
                at += len(messages)
            count.sent += sent
            count.given_up += asked - sent
            count.garbage += count.pool.garbage_between(first, sent)
            count.sent_in[second] += sent

    def _end_second(self, second: int) -> None:
        """Asks the broker what it has; the row follows when it answers, or without its word when the next second ends."""
        if self.open_second is not None:
            self._emit(self.open_second, None)
        self.open_second = second
        self.waiting_at[second] = self.sender.waiting()
        self.broker.ask_ends()

    def _close_second(self, wait_s: float = 0.0) -> None:
        if self.open_second is None:
            return
        deadline = time.monotonic() + wait_s
        ends = self.broker.answered_ends()
        while ends is None and time.monotonic() < deadline:
            time.sleep(0.01)
            ends = self.broker.answered_ends()
        if ends is not None or wait_s:
            self._emit(self.open_second, ends)
            self.open_second = None

    def _emit(self, second: int, ends: dict[str, int] | None) -> None:
        begin, end = (min(float(t), self.scenario.duration_s) for t in (second, second + 1))
        late = self.late_in.pop(second, [])
        rows = [
            Second(
                second=second,
                topic=load_.topic,
                asked=due(load_.rate, end) - due(load_.rate, begin),
                sent=self.counts[load_.topic].sent_in[second],
                at_broker=None if ends is None else ends[load_.topic] - self.known_ends[load_.topic],
                late_ticks=sum(s > self.options.tick_s for s in late),
                worst_late_ms=round(1000 * max(late, default=0.0), 3),
                waiting=self.waiting_at.pop(second, 0),
            )
            for load_ in self.scenario.topics
        ]
        self.known_ends = ends or self.known_ends
        self.seconds += rows
        if self.on_second is not None:
            self.on_second(second, rows)

    def _flush(self) -> int:
        """Waits for all acknowledgements: while the broker is away as long as events may wait, a short time when stopped."""
        deadline = time.monotonic() + self.options.delivery_timeout_s + 5
        missing = self.sender.flush(0.5)
        while missing and time.monotonic() < deadline:
            if self.stop.is_set():
                deadline = min(deadline, time.monotonic() + 10)
            missing = self.sender.flush(0.5)
        return missing

    def _report(self, before: dict[str, int], missing: int, took: tuple[float, float, float]) -> Report:
        ran_s, flushed_s, cpu_s = took
        after = self.broker.ends()
        problems = self.switch.finish()
        if self.sender.first_failure:
            problems.append(f"The broker did not take every event, first {self.sender.first_failure}.")
        if missing:
            problems.append(f"{missing} events were not acknowledged when the player ended.")
        if after is None:
            problems.append("The broker did not tell its end offsets at the end, so the delivery was not verified.")
        if ran_s > self.scenario.duration_s + LATE_END_S:
            problems.append(
                f"The scenario took {ran_s:.1f} s instead of {self.scenario.duration_s:g} s, the rate could not be held."
            )
        reports = []
        for load_ in self.scenario.topics:
            count = self.counts[load_.topic]
            failed = self.sender.failed[load_.topic]
            grown = None if after is None else after[load_.topic] - before[load_.topic]
            # Acknowledgements that are missing cannot be told apart by topic; the end offsets can.
            delivered = count.sent - failed if not missing else min(count.sent - failed, grown or 0)
            if grown is not None and grown != delivered:
                problems.append(
                    f"Topic {load_.topic} grew by {grown} events and {delivered} were delivered: others wrote to it too."
                )
            if count.given_up and not self.stop.is_set():
                problems.append(f"Topic {load_.topic}: {count.given_up} events were given up, the rate could not be held.")
            reports.append(
                TopicReport(
                    topic=load_.topic,
                    asked=count.next_event,
                    sent=count.sent,
                    garbage=count.garbage,
                    given_up=count.given_up,
                    failed=failed,
                    delivered=delivered,
                    at_broker=grown,
                )
            )
        late = sorted(self.lateness) or [0.0]
        return Report(
            scenario=self.scenario.name,
            asked_s=self.scenario.duration_s,
            ran_s=round(ran_s, 3),
            flushed_s=round(flushed_s, 3),
            stopped_early=self.stop.is_set(),
            topics=tuple(reports),
            seconds=tuple(self.seconds),
            ticks=len(self.lateness),
            late_ticks=sum(s > self.options.tick_s for s in late),
            late_ms_p50=round(1000 * late[len(late) // 2], 3),
            late_ms_p99=round(1000 * late[min(len(late) - 1, int(len(late) * 0.99))], 3),
            late_ms_max=round(1000 * late[-1], 3),
            cpu_s=round(cpu_s, 3),
            problems=tuple(problems),
        )


@contextmanager
def stop_on_signals(stop: threading.Event) -> Iterator[None]:
    """SIGINT and SIGTERM set the event instead of ending the program."""
    before = {s: signal.signal(s, lambda *_: stop.set()) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def main_play(
    path: str | Path,
    *,
    bootstrap: str | None = None,
    as_json: bool = False,
    quiet: bool = False,
    options: PlayOptions | None = None,
    out: TextIO | None = None,
    err: TextIO | None = None,
) -> int:
    """`spillway inject FILE`: a line per second on stderr, the report on stdout (`as_json`: one JSON object)."""
    out, err = out or sys.stdout, err or sys.stderr
    stop = threading.Event()

    def show(second: int, rows: Sequence[Second]) -> None:
        if second % 20 == 0:
            print(_line(("second", "topic", "asked", "sent", "at broker", "error %", "late", "worst ms", "waiting")), file=err)
        for row in rows:
            print(_line(second_row(row)), file=err, flush=True)

    try:
        scenario = load(path)
        with stop_on_signals(stop):
            on_second = None if quiet else show
            report = play(scenario, bootstrap or _bootstrap(), on_second=on_second, stop_event=stop, options=options)
    except (ScenarioError, PlayError) as error:
        print(error, file=err)
        return 1
    print(report.to_json() if as_json else report.table(), file=out)
    return 0 if report.ok or (report.stopped_early and not report.problems) else 1


def _line(cells: Sequence[object]) -> str:
    widths = (6, 22, 9, 9, 9, 9, 5, 9, 9)
    return "  ".join(str(c).ljust(w) if n == 1 else str(c).rjust(w) for n, (c, w) in enumerate(zip(cells, widths, strict=True)))


def _bootstrap() -> str:
    from spillway.store import StoreError
    from spillway.store.environment import require

    try:
        return require("SPILLWAY_KAFKA")
    except StoreError as error:
        raise PlayError(str(error)) from error
