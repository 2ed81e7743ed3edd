"""What operators cost, learned from what the twin shows of them: as in the live cycle, never from the costs of its world."""

from __future__ import annotations

from collections import deque

import numpy as np

from spillway.decide.qod.learn import learn
from spillway.model.qod import Cost, CostSample
from spillway.policy import Policy
from spillway.simulate.sharing import sums
from spillway.simulate.watch import Window
from spillway.simulate.world import World


class Learner:
    """Remembers a sample of each operator per window and fits its cost anew when asked."""

    def __init__(self, world: World, policy: Policy) -> None:
        self._policy = policy
        self._instances = np.array([len(operator.nodes) for operator in world.operators])
        windows = max(1, int(policy.qod_learn_s // policy.qod_cycle_s))
        self._samples: list[deque[CostSample]] = [deque(maxlen=windows) for _ in world.operators]

    def see(self, window: Window) -> None:
        """A window in which an instance was new or away says nothing about the usual cost."""
        count = len(self._instances)
        settled = sums(window.owner, window.age_s < self._policy.qod_warm_up_s, count) == 0
        cpu = sums(window.owner, window.cpu, count) / self._instances
        for number in np.flatnonzero(settled & (window.batches > 0) & (window.span_s > 0)).tolist():
            per_s = 1.0 / (window.span_s[number] * self._instances[number])
            sample = CostSample(
                arrived=float(window.read[number] * per_s), kept=float(window.kept[number] * per_s), cpu=float(cpu[number])
            )
            self._samples[number].append(sample)

    def costs(self) -> dict[int, Cost]:
        """By number of the operator; absent where it cannot be told."""
        found = {number: learn(tuple(samples), self._policy) for number, samples in enumerate(self._samples)}
        return {number: cost for number, cost in found.items() if cost is not None}
