"""One run as a file: per cycle what was sent, kept, left waiting and used. The twin writes it, the store exports it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from math import isnan
from pathlib import Path
from typing import Any

from spillway.model.qod import Observation, ObservationError, edge_name
from spillway.model.qod_check import MOST, shown
from spillway.simulate.run import Run

FORMAT = "spillway-recording/1"


class RecordingError(ValueError):
    """A file that is no recording: one sentence with the field that is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeRecord:
    keep: float | None
    """In force at the end of the cycle."""
    lag: float | None
    """Rows that the last batch left behind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorRecord:
    in_rate: float | None
    """Rows per second behind the shedders, all instances together."""
    cpu: float | None
    """Percent of a core, all instances together."""
    accuracy: float | None
    """Its current accuracy: rows that got in per row that was sent, along the way from the sources."""
    nodes: tuple[str, ...] = ()
    """Where its instances were; empty: not told, they stayed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleRecord:
    t_s: float
    """End of the cycle, seconds since the beginning of the recording."""
    topics: Mapping[str, float | None] = field(default_factory=dict)
    """Rows per second written to each external topic."""
    edges: Mapping[str, EdgeRecord] = field(default_factory=dict)
    operators: Mapping[str, OperatorRecord] = field(default_factory=dict)
    nodes: Mapping[str, float | None] = field(default_factory=dict)
    """CPU of each node, everything on it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """Names are those of the topology; a value that is not known is null, never 0."""

    cycle_s: float
    cycles: tuple[CycleRecord, ...]
    source: str = ""
    """What was recorded, in words."""

    def to_json(self) -> str:
        return json.dumps({"format": FORMAT, **asdict(self)}, separators=(",", ":"), allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Recording:
        try:
            raw = json.loads(text)
        except json.JSONDecodeError as error:
            raise RecordingError(f"line {error.lineno} is not valid JSON ({error.msg}): give one JSON object") from None
        except ValueError:
            raise RecordingError("it has a number of too many digits: give one JSON object") from None
        if not isinstance(raw, dict) or raw.get("format") != FORMAT:
            raise RecordingError(f'it does not begin with "format": "{FORMAT}": give a file that was exported as a recording')
        cycles = raw.get("cycles")
        if not isinstance(cycles, list) or not cycles:
            raise RecordingError("cycles is empty or missing: give at least one cycle")
        found = tuple(_cycle(c, f"cycles[{n}]") for n, c in enumerate(cycles))
        cycle_s = _number(raw.get("cycle_s"), "cycle_s")
        if not cycle_s:
            raise RecordingError("cycle_s is missing or 0: give the length of a cycle in seconds")
        for number, cycle in enumerate(found):
            if abs(cycle.t_s - (number + 1) * cycle_s) > 0.01 * cycle_s:
                expected = (number + 1) * cycle_s
                raise RecordingError(f"cycles[{number}].t_s is {cycle.t_s:g}, but cycles of {cycle_s:g} s end at {expected:g}")
        return cls(cycle_s=cycle_s, cycles=found, source=str(raw.get("source", "")))


def read(path: str | Path) -> Recording:
    """A recording, or stored observations, one JSON object per line (docs/twin.md says how to get them)."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RecordingError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    try:
        if '"format"' not in text[:200] and '"nodes"' in text:
            return from_observations(text.splitlines(), source=Path(path).name)
        return Recording.from_json(text)
    except RecordingError as error:
        raise RecordingError(f"{path} is no recording: {error}") from None
    except RecursionError:
        raise RecordingError(f"{path} is no recording: it is nested too deeply: give what docs/twin.md describes") from None


def from_observations(lines: Iterable[str], *, source: str) -> Recording:
    """What the live cycle saw, as it was stored: observations in order, at the ends of their windows.

    A cycle that is missing tells nothing. Where all operators are of one pipeline, names are those of its topology.
    """
    seen: list[tuple[datetime, Observation]] = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                found = Observation.from_json(line)
                seen.append((datetime.fromisoformat(found.now or ""), found))
            except ObservationError as error:
                raise RecordingError(f"line {number}: {error}") from None
            except ValueError:
                raise RecordingError(f"line {number}: now is missing or no time: give the end of the window") from None
            if (seen[-1][0].tzinfo is None) != (seen[0][0].tzinfo is None):
                raise RecordingError(f"line {number}: of now here and in line 1 only one has a time zone: give all of them one")
    cycle_s = seen[0][1].cycle_s
    if not cycle_s:
        raise RecordingError("line 1: cycle_s is missing: give the length of a cycle in seconds")
    at = {round((end - seen[0][0]).total_seconds() / cycle_s): found for end, found in seen}
    if min(at) < 0:
        raise RecordingError("the observations are not in order of time")
    prefix = _one_pipeline(found for _, found in seen)
    cycles = tuple(
        _seen(at[n], (n + 1) * cycle_s, prefix) if n in at else CycleRecord(t_s=(n + 1) * cycle_s) for n in range(max(at) + 1)
    )
    return Recording(cycle_s=cycle_s, cycles=cycles, source=source)


def _one_pipeline(observations: Iterable[Observation]) -> str:
    pipelines = {o.name.partition("/")[0] for found in observations for o in found.operators if "/" in o.name}
    return f"{pipelines.pop()}/" if len(pipelines) == 1 else ""


def _seen(observation: Observation, t_s: float, prefix: str) -> CycleRecord:
    def plain(name: str) -> str:
        return name.removeprefix(prefix)

    rates = {o.name: _all(i.in_rate for i in o.instances) for o in observation.operators}
    accuracy = _current(observation, rates)
    return CycleRecord(
        t_s=t_s,
        topics={e.topic or "": e.out_rate for e in observation.edges if e.producer is None},
        edges={
            edge_name(None if e.producer is None else plain(e.producer), e.topic, plain(e.consumer)): EdgeRecord(
                keep=e.keep, lag=e.lag
            )
            for e in observation.edges
        },
        operators={
            plain(o.name): OperatorRecord(
                in_rate=rates[o.name],
                cpu=_all(i.cpu for i in o.instances),
                accuracy=accuracy[o.name],
                nodes=tuple(i.node for i in o.instances),
            )
            for o in observation.operators
        },
        nodes={n.name: n.cpu for n in observation.nodes},
    )


def _all(values: Iterable[float | None]) -> float | None:
    """Their sum; None when one of them is not known."""
    known = list(values)
    return None if None in known or not known else sum(value for value in known if value is not None)


def _current(observation: Observation, rates: Mapping[str, float | None]) -> dict[str, float | None]:
    """Stream Economics, equations 3 and 4."""
    inputs = {o.name: [e for e in observation.edges if e.consumer == o.name] for o in observation.operators}
    found: dict[str, float | None] = {}

    def of(name: str) -> float | None:
        if name not in found:
            sent, got = _all(e.out_rate for e in inputs[name]), rates[name]
            above = [1.0 if e.producer is None else of(e.producer) for e in inputs[name]]
            if sent is None or got is None or None in above:
                found[name] = None
            else:
                found[name] = (min(got / sent, 1.0) if sent > 0 else 1.0) * min(a for a in above if a is not None)
        return found[name]

    return {o.name: of(o.name) for o in observation.operators}


def record(run: Run, *, source: str) -> Recording:
    """A run of the twin, as a real one would be recorded."""
    world, consumer = run.world, run.twin.consumer
    cycles = []
    for count, window in enumerate((c.window for c in run.cycles), 1):
        live = window.live.tolist()
        first, operators = 0, {}
        for number, operator in enumerate(world.operators):
            last = first + len(operator.nodes)
            if live[number]:
                operators[operator.name] = OperatorRecord(
                    in_rate=_known(float(window.processed[number])),
                    cpu=float(window.cpu[first:last].sum()),
                    accuracy=_known(float(window.current[number])),
                    nodes=tuple(world.nodes[n].name for n in window.node[first:last].tolist()),
                )
            first = last
        cycles.append(
            CycleRecord(
                t_s=count * run.policy.qod_cycle_s,
                topics={load.topic: float(rate) for load, rate in zip(world.loads, window.offered, strict=True)},
                edges={
                    edge.name: EdgeRecord(keep=float(window.keep[n]), lag=float(window.lag[n]))
                    for n, edge in enumerate(world.edges)
                    if live[consumer[n]]
                },
                operators=operators,
                nodes={
                    node.name: float(cpu)
                    for node, cpu, joined in zip(world.nodes, window.node_cpu, window.joined, strict=True)
                    if joined
                },
            )
        )
    return Recording(cycle_s=run.policy.qod_cycle_s, cycles=tuple(cycles), source=source)


def _known(value: float) -> float | None:
    return None if isnan(value) else value


def _cycle(raw: Any, path: str) -> CycleRecord:
    fields = _fields(raw, path, ("t_s", "topics", "edges", "operators", "nodes"))
    t_s = _number(fields.get("t_s"), f"{path}.t_s")
    if t_s is None:
        raise RecordingError(f"{path}.t_s is missing: give the end of the cycle in seconds")
    return CycleRecord(
        t_s=t_s,
        topics={n: _number(v, f"{path}.topics.{n}") for n, v in _fields(fields.get("topics", {}), f"{path}.topics").items()},
        edges={n: _edge(v, f"{path}.edges.{n}") for n, v in _fields(fields.get("edges", {}), f"{path}.edges").items()},
        operators={
            n: _operator(v, f"{path}.operators.{n}") for n, v in _fields(fields.get("operators", {}), f"{path}.operators").items()
        },
        nodes={n: _number(v, f"{path}.nodes.{n}") for n, v in _fields(fields.get("nodes", {}), f"{path}.nodes").items()},
    )


def _edge(raw: Any, path: str) -> EdgeRecord:
    fields = _fields(raw, path, ("keep", "lag"))
    return EdgeRecord(keep=_number(fields.get("keep"), f"{path}.keep", 1.0), lag=_number(fields.get("lag"), f"{path}.lag"))


def _operator(raw: Any, path: str) -> OperatorRecord:
    fields = _fields(raw, path, ("in_rate", "cpu", "accuracy", "nodes"))
    nodes = fields.get("nodes", [])
    if not isinstance(nodes, list) or not all(isinstance(node, str) for node in nodes):
        raise RecordingError(f"{path}.nodes must be a list of names of nodes")
    return OperatorRecord(
        in_rate=_number(fields.get("in_rate"), f"{path}.in_rate"),
        cpu=_number(fields.get("cpu"), f"{path}.cpu"),
        accuracy=_number(fields.get("accuracy"), f"{path}.accuracy", 1.0),
        nodes=tuple(nodes),
    )


def _fields(raw: Any, path: str, known: tuple[str, ...] | None = None) -> dict[str, Any]:
    if not isinstance(raw, dict):
        raise RecordingError(f"{path} must be an object")
    for name in raw:
        if known is not None and name not in known:
            raise RecordingError(f"{path} has the unknown field {name}: known are {', '.join(known)}")
    return raw


def _number(value: Any, path: str, high: float = MOST) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= high:
        raise RecordingError(f"{path} is {shown(value)}, but must be a number from 0 to {high:g} or null")
    return float(value)
