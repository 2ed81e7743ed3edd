"""What operators did and used in the past, for whoever learns what they cost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from spillway.model.qod import CostSample
from spillway.model.window import Interval
from spillway.observe.rates import split_cpu
from spillway.policy import Policy
from spillway.store.queries import rows

if TYPE_CHECKING:
    from psycopg2.extensions import connection as Connection

Samples = dict[tuple[str, str], list[CostSample]]
"""By pipeline and operator."""
Instances = Mapping[tuple[str, str], int]
"""By pipeline and operator: how many there are now."""
NOBODY: Instances = MappingProxyType({})


def read_samples(
    conn: Connection, interval: Interval, policy: Policy, pipelines: Sequence[str], instances: Instances = NOBODY
) -> Samples:
    """One sample per operator and slice as long as a cycle, of those before the window whose batches have finished."""
    slices = max(1, int(policy.qod_learn_s // interval.seconds))
    back = timedelta(seconds=(slices + policy.qod_stale_cycles) * interval.seconds)
    found = rows(
        conn,
        "qod_samples",
        start=interval.start,
        end=interval.end,
        since=interval.start - back,
        closed=interval.end + timedelta(seconds=policy.qod_settle_s),
        width_s=interval.seconds,
        slices=slices,
        pipelines=list(pipelines),
    )
    return samples(found, interval.seconds, instances)


def samples(found: Sequence[dict[str, Any]], width_s: float, instances: Instances = NOBODY) -> Samples:
    """Per instance. What an application used is split by the CPU time of its operators' stages, else by the time of batches.

    A batch costs what its tasks do, however many executors share them: what is fixed of it as well. So a slice in which an
    operator had another number of instances counts as if it had had the present one.

    >>> row = {"pipeline": "p", "application": "a", "n": 0, "rows_read": 300.0, "rows_kept": 150.0, "executors": 2, "cpu": 90.0}
    >>> x, y = {"operator": "x", "busy_ms": 2.0, "taken_ms": 20.0}, {"operator": "y", "busy_ms": 4.0, "taken_ms": 10.0}
    >>> samples([{**row, **x}, {**row, **y}], 15.0)["p", "x"]
    [CostSample(arrived=10.0, kept=5.0, cpu=30.0)]
    >>> samples([{**row, **x}, {**row, **y}], 15.0, {("p", "x"): 4})["p", "x"]
    [CostSample(arrived=5.0, kept=2.5, cpu=15.0)]
    """
    together: dict[tuple[str, str, int], list[dict[str, Any]]] = defaultdict(list)
    for row in found:
        together[row["pipeline"], row["application"], row["n"]].append(row)
    result: Samples = defaultdict(list)
    for members in together.values():
        operators = [m["operator"] for m in members]
        taken = {(m["operator"], ""): m["taken_ms"] for m in members if m["taken_ms"] is not None}
        parts = split_cpu(
            operators, "", taken if len(taken) == len(members) else {}, {m["operator"]: m["busy_ms"] or 0.0 for m in members}
        )
        for m in members:
            shared = instances.get((m["pipeline"], m["operator"])) or m["executors"]
            each = shared * width_s
            result[m["pipeline"], m["operator"]].append(
                CostSample(
                    arrived=m["rows_read"] / each,
                    kept=m["rows_kept"] / each,
                    cpu=m["cpu"] * parts[m["operator"]] / shared,
                )
            )
    return result
