"""How the utilities on an edge are spread, learned from its own recent batches, so that a keep becomes a bound on utility.

A batch cannot be sorted before it is read, so each one is cut by what the batches before it looked like: every batch reports
quantiles of a sample of what arrived, before shedding; they are mixed, the older the lighter, and put into a JVM property
beside that of the keep. The plan finds the cut for the keep of the moment (`shed.cut_frame`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from datetime import datetime
from itertools import accumulate
from typing import Any

from spillway.model.topology import Edge, Shed

LEVELS = 200
"""Quantiles per batch. Bins are this fine: within the one bin that holds the cut, rows are chosen by chance."""
SAMPLE = 4
"""One row in this many is looked at."""
_MOST_BINS = 400


def property_name(pipeline: str, edge: str) -> str:
    return f"spillway.utility.{pipeline}.{edge}"


def observed_name(edge: str) -> str:
    """The name under which a batch reports the utilities of an edge."""
    return f"{edge} utility"


class Distribution:
    """A histogram of utilities that forgets. A bin is (the value before, its value], so a value that many rows share has a bin of
    its own."""

    def __init__(self, half_life_s: float) -> None:
        self._half_life_s, self._at = half_life_s, 0.0
        self._bins: list[tuple[float, float]] = []

    def add(self, quantiles: list[float], rows: int, at_s: float) -> None:
        """`quantiles` of `rows` sampled rows at equal steps up to the greatest value; `at_s` in seconds of any clock."""
        if not quantiles or rows <= 0:
            return
        faded = 0.5 ** (max(0.0, at_s - self._at) / self._half_life_s)
        self._at = max(at_s, self._at)
        masses: dict[float, float] = {value: mass * faded for value, mass in self._bins}
        for value in quantiles:
            masses[value] = masses.get(value, 0.0) + rows / len(quantiles)
        self._bins = _coarser(sorted(masses.items()))

    def encode(self) -> str:
        """`values;shares`: the upper ends of the bins, and the share of rows up to each, which ends in 1.

        >>> spread = Distribution(60.0)
        >>> spread.add([0.0, 0.0, 0.0, 5.0], 100, at_s=0.0)
        >>> spread.encode()
        '0.0,5.0;0.75,1.0'
        """
        total = sum(mass for _, mass in self._bins)
        shares = [share / total for share in accumulate(mass for _, mass in self._bins)]
        return ",".join(repr(v) for v, _ in self._bins) + ";" + ",".join(repr(s) for s in [*shares[:-1], 1.0])


def _coarser(bins: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """The same histogram with at most about `_MOST_BINS` bins of roughly equal mass; what is joined takes the upper value."""
    if len(bins) <= _MOST_BINS:
        return bins
    shares = list(accumulate(mass for _, mass in bins))
    joined, begin = list[tuple[float, float]](), 0
    for step in range(1, _MOST_BINS + 1):
        end = min(bisect_left(shares, shares[-1] * step / _MOST_BINS) + 1, len(bins))
        if end > begin:
            joined.append((bins[end - 1][0], sum(mass for _, mass in bins[begin:end])))
            begin = end
    return joined


class UtilityFollower:
    """Keeps the property of every edge of an operator that sheds by utility."""

    def __init__(self, edges: tuple[Edge, ...], half_life_s: float, publish: Callable[[str, str], None]) -> None:
        """`publish(edge, text)` puts a distribution in force."""
        self._publish = publish
        self._known = {e.name: Distribution(half_life_s) for e in edges if e.shed is Shed.BY_UTILITY}

    def batch(self, progress: dict[str, Any]) -> None:
        """Called for every finished batch."""
        for edge, known in self._known.items():
            seen = progress.get("observedMetrics", {}).get(observed_name(edge)) or {}
            if seen.get("quantiles"):
                at = datetime.fromisoformat(progress["timestamp"].replace("Z", "+00:00")).timestamp()
                known.add([float(q) for q in seen["quantiles"]], int(seen["rows"]), at)
                self._publish(edge, known.encode())
