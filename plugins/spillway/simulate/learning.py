"""What operators cost, learned from what the twin shows of them: as in the live cycle, never from the costs of its world."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spillway.decide.qod.learn import learn
from spillway.model.qod import Cost, CostSample
from spillway.policy import Policy
from spillway.simulate.engine import Twin
from spillway.simulate.sharing import Floats, sums
from spillway.simulate.watch import Window


@dataclass(slots=True)
class _Slice:
    """What operators did and used in one window; a batch counts as much as it ran in it."""

    begins: float
    ends: float
    settled: NDArray[np.bool_]
    cpu: Floats
    read: Floats
    kept: Floats


class Learner:
    """Remembers a sample of each operator per window and fits its cost anew when asked.

    As live (`sql/queries/qod_samples.sql`), a window is a sample once the next one has closed: then its batches have finished.
    """

    def __init__(self, twin: Twin, policy: Policy) -> None:
        self._policy, self._ended = policy, twin.log()
        self._instances = np.array([len(operator.nodes) for operator in twin.world.operators])
        windows = max(1, int(policy.qod_learn_s // policy.qod_cycle_s))
        self._samples: list[deque[CostSample]] = [deque(maxlen=windows) for _ in twin.world.operators]
        self._last: _Slice | None = None

    def see(self, window: Window) -> None:
        """A window in which an instance was new or away says nothing about the usual cost."""
        count = len(self._instances)
        current = _Slice(
            begins=window.end_s - window.length_s,
            ends=window.end_s,
            settled=sums(window.owner, window.age_s < self._policy.qod_warm_up_s, count) == 0,
            cpu=sums(window.owner, window.cpu, count) / self._instances,
            read=np.zeros(count),
            kept=np.zeros(count),
        )
        for batch in self._ended:
            for into in (self._last, current):
                if into is not None:
                    ran = np.minimum(batch.ended, into.ends) - np.maximum(batch.began, into.begins)
                    part = np.clip(ran / np.maximum(batch.ended - batch.began, 1e-9), 0.0, 1.0)
                    into.read[batch.operator] += batch.read * part
                    into.kept[batch.operator] += batch.kept * part
        self._ended.clear()
        if self._last is not None:
            self._remember(self._last)
        self._last = current

    def _remember(self, done: _Slice) -> None:
        per_s = 1.0 / ((done.ends - done.begins) * self._instances)
        for number in np.flatnonzero(done.settled & (done.read > 0)).tolist():
            arrived, kept = float(done.read[number] * per_s[number]), float(done.kept[number] * per_s[number])
            self._samples[number].append(CostSample(arrived=arrived, kept=kept, cpu=float(done.cpu[number])))

    def costs(self) -> dict[int, Cost]:
        """By number of the operator; absent where it cannot be told."""
        found = {number: learn(tuple(samples), self._policy) for number, samples in enumerate(self._samples)}
        return {number: cost for number, cost in found.items() if cost is not None}
