"""The twin's error against a recorded run: the same arrivals, the same keeps, and what came of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from math import isnan
from typing import Any

import numpy as np

from spillway.inject.profiles import Constant, Piecewise
from spillway.policy import Policy
from spillway.simulate.engine import Twin
from spillway.simulate.recording import CycleRecord, Recording, RecordingError
from spillway.simulate.watch import Watch, Window
from spillway.simulate.world import Load, World


@dataclass(frozen=True, slots=True, kw_only=True)
class Error:
    """Of one measure, over the cycles in which both sides know it."""

    cycles: int
    mean: float
    """Mean of the absolute differences."""
    bias: float
    """Mean of the differences: what the twin says too much."""
    worst: float
    recorded: float
    """Mean of what was recorded, to judge the others by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    operator: str
    lag_s: Error | None
    accuracy: Error | None
    cpu: Error | None
    """None where nothing was recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    source: str
    cycles: int
    operators: tuple[Compared, ...]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def against(world: World, policy: Policy, recording: Recording, *, seed: int = 1) -> Comparison:
    """Plays what was recorded on the twin: arrivals, keeps and places from the recording, everything else from the world."""
    _fits(world, recording)
    played = replace(world, loads=tuple(_load(topic.topic, recording) for topic in world.loads))
    twin = Twin(played, replace(policy, qod_cycle_s=recording.cycle_s), seed=seed)
    watch = Watch(twin, seed=seed)
    windows = []
    for cycle in recording.cycles:
        _set(twin, played, cycle)
        twin.advance(cycle.t_s)
        windows.append(watch.close())
    return Comparison(
        source=recording.source,
        cycles=len(windows),
        operators=tuple(_compare(played, number, windows, recording) for number in range(len(world.operators))),
    )


def _fits(world: World, recording: Recording) -> None:
    known = {
        "topic": {load.topic for load in world.loads},
        "edge": {edge.name for edge in world.edges},
        "operator": {operator.name for operator in world.operators},
        "node": {node.name for node in world.nodes},
    }
    for number, cycle in enumerate(recording.cycles):
        placed = {node for operator in cycle.operators.values() for node in operator.nodes}
        found = {"topic": cycle.topics, "edge": cycle.edges, "operator": cycle.operators, "node": {*cycle.nodes, *placed}}
        for what, names in found.items():
            if strange := sorted(set(names) - known[what]):
                raise RecordingError(f"cycles[{number}] has the {what} {strange[0]}, which the scenario does not have")
    for topic in sorted(known["topic"]):
        if not any(cycle.topics.get(topic) is not None for cycle in recording.cycles):
            raise RecordingError(f"the rate of topic {topic} was not recorded, so what arrived is not known")


def _load(topic: str, recording: Recording) -> Load:
    """Arrivals as recorded; where a cycle does not tell, as in the one before."""
    pieces, last = [], 0.0
    for cycle in recording.cycles:
        last = known if (known := cycle.topics.get(topic)) is not None else last
        pieces.append((recording.cycle_s, Constant(last)))
    return Load(topic=topic, rate=Piecewise(tuple(pieces)))


def _set(twin: Twin, world: World, cycle: CycleRecord) -> None:
    """What was decided on the cycle before and is in force at the end of this one."""
    keeps = {n: cycle.edges[e.name].keep for n, e in enumerate(world.edges) if e.name in cycle.edges}
    twin.publish({n: keep for n, keep in keeps.items() if keep is not None and keep != twin.keep[n]})
    number = {node.name: n for n, node in enumerate(world.nodes)}
    for k, operator in enumerate(world.operators):
        placed = cycle.operators[operator.name].nodes if operator.name in cycle.operators else ()
        for offset, node in enumerate(placed[: len(operator.nodes)]):
            instance = int(twin.first[k]) + offset
            if number[node] != twin.node[instance]:
                twin.move(instance, number[node])


def _compare(world: World, number: int, windows: list[Window], recording: Recording) -> Compared:
    name = world.operators[number].name
    inputs = [n for n, edge in enumerate(world.edges) if edge.consumer == name]
    mine = np.flatnonzero(windows[0].owner == number)

    def error(of_twin: Callable[[Window], float], of_record: Callable[[CycleRecord, Window], float | None]) -> Error | None:
        pairs = [(of_twin(w), of_record(c, w)) for w, c in zip(windows, recording.cycles, strict=True)]
        known = [(t, r) for t, r in pairs if r is not None and not isnan(t)]
        if not known:
            return None
        differences = np.array([t - r for t, r in known])
        return Error(
            cycles=len(known),
            mean=float(np.abs(differences).mean()),
            bias=float(differences.mean()),
            worst=float(np.abs(differences).max()),
            recorded=float(np.mean([r for _, r in known])),
        )

    def lag_s(cycle: CycleRecord, window: Window) -> float | None:
        """In seconds of the traffic that the twin sees: both sides by one measure."""
        lags = [cycle.edges[world.edges[n].name].lag if world.edges[n].name in cycle.edges else None for n in inputs]
        sent = float(sum(window.out_rate[n] for n in inputs))
        if None in lags or isnan(sent) or sent <= 0:
            return None
        return sum(lag for lag in lags if lag is not None) / sent

    def of(field: str) -> Callable[[CycleRecord, Window], float | None]:
        return lambda cycle, _: getattr(cycle.operators[name], field) if name in cycle.operators else None

    return Compared(
        operator=name,
        lag_s=error(lambda w: float(sum(w.lag[n] for n in inputs)) / float(sum(w.out_rate[n] for n in inputs) or 1.0), lag_s),
        accuracy=error(lambda w: float(w.current[number]), of("accuracy")),
        cpu=error(lambda w: float(w.cpu[mine].sum()), of("cpu")),
    )
