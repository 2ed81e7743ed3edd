"""What was asked of the injector and what it achieved."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Second:
    """One topic in one second of the run."""

    second: int
    topic: str
    asked: int
    """Due in this second by the scenario."""
    sent: int
    """Handed to the producer in this second."""
    at_broker: int | None
    """New in the topic, by the broker's end offsets; None when it did not answer (the next answer then covers both)."""
    late_ticks: int
    worst_late_ms: float
    waiting: int
    """Handed over and not yet acknowledged, all topics together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicReport:
    topic: str
    asked: int
    sent: int
    garbage: int
    """Of those sent."""
    given_up: int
    """Not sent, because the player was further behind than it may catch up."""
    failed: int
    """Sent, and refused or timed out."""
    delivered: int
    """Sent and acknowledged by the broker."""
    at_broker: int | None
    """New in the topic since the start, by its end offsets; None when the broker did not answer."""

    @property
    def error_pct(self) -> float:
        return 100.0 * (self.delivered - self.asked) / self.asked if self.asked else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    scenario: str
    asked_s: float
    ran_s: float
    flushed_s: float
    """Until everything sent was acknowledged."""
    stopped_early: bool
    topics: tuple[TopicReport, ...]
    seconds: tuple[Second, ...]
    ticks: int
    late_ticks: int
    late_ms_p50: float
    late_ms_p99: float
    late_ms_max: float
    cpu_s: float
    problems: tuple[str, ...]

    @property
    def asked(self) -> int:
        return sum(t.asked for t in self.topics)

    @property
    def delivered(self) -> int:
        return sum(t.delivered for t in self.topics)

    @property
    def ok(self) -> bool:
        """Everything that was asked for was sent, and the broker has exactly that."""
        return not self.problems and all(t.sent == t.asked == t.delivered for t in self.topics)

    def second_error_pct(self) -> tuple[float, float]:
        """Mean and largest deviation of the events sent from those asked, over full seconds of all topics."""
        full = [s for s in self.seconds if s.asked and s.second < int(self.ran_s)]
        errors = [100.0 * abs(s.sent - s.asked) / s.asked for s in full]
        return (sum(errors) / len(errors), max(errors)) if errors else (0.0, 0.0)

    def as_dict(self) -> dict[str, Any]:
        mean, worst = self.second_error_pct()
        topics = [asdict(t) | {"error_pct": round(t.error_pct, 4)} for t in self.topics]
        return asdict(self) | {
            "topics": topics,
            "ok": self.ok,
            "second_error_pct_mean": round(mean, 4),
            "second_error_pct_max": round(worst, 4),
        }

    def to_json(self) -> str:
        return json.dumps(self.as_dict(), separators=(",", ":"))

    def table(self) -> str:
        """Per topic and as a whole, for people."""
        rows = [
            (t.topic, t.asked, t.sent, t.delivered, _or_dash(t.at_broker), t.failed, t.given_up, t.garbage, f"{t.error_pct:+.3f}")
            for t in self.topics
        ]
        head = ("topic", "asked", "sent", "delivered", "at broker", "failed", "given up", "garbage", "error %")
        mean, worst = self.second_error_pct()
        lines = [
            format_table(head, rows),
            f"{self.scenario}: {self.ran_s:.1f} of {self.asked_s:g} s, {self.delivered / max(self.ran_s, 1e-9):.0f} events/s, "
            f"error per second {mean:.2f} % mean, {worst:.2f} % at most, "
            f"{self.late_ticks} of {self.ticks} ticks late (p50 {self.late_ms_p50:.1f}, p99 {self.late_ms_p99:.1f}, "
            f"max {self.late_ms_max:.1f} ms), {self.cpu_s / max(self.ran_s, 1e-9):.2f} core",
        ]
        return "\n".join([*lines, *(f"problem: {p}" for p in self.problems)])


def second_table(rows: Sequence[Second]) -> str:
    """The rows of one or several seconds, for people."""
    head = ("second", "topic", "asked", "sent", "at broker", "error %", "late ticks", "worst ms", "waiting")
    return format_table(head, [second_row(s) for s in rows])


def second_row(s: Second) -> tuple[object, ...]:
    error = f"{100.0 * (s.sent - s.asked) / s.asked:+.2f}" if s.asked else "–"
    return (s.second, s.topic, s.asked, s.sent, _or_dash(s.at_broker), error, s.late_ticks, f"{s.worst_late_ms:.1f}", s.waiting)


def format_table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    cells = [list(head), *([str(c) for c in row] for row in rows)]
    widths = [max(len(row[n]) for row in cells) for n in range(len(head))]
    numeric = [n for n in range(len(head)) if all(_is_number(row[n]) for row in cells[1:])]
    return "\n".join(
        "  ".join(c.rjust(widths[n]) if n in numeric else c.ljust(widths[n]) for n, c in enumerate(row)).rstrip() for row in cells
    )


def _is_number(text: str) -> bool:
    return not text.strip("+-–.0123456789")


def _or_dash(value: int | None) -> str:
    return "–" if value is None else str(value)
