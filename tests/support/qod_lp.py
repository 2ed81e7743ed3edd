"""The best that can be had, by linear programming: a second model of the distribution, and of the cores that floors need."""

from __future__ import annotations

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, linprog, milp

from tests.support.qod_oracle import ONE_CORE, Oracle


def _line(oracle: Oracle) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Operators, and `used = matrix @ accuracies + constant` of every resource, for accuracies at or above the floors."""
    names = list(oracle.operators)
    floors = {n: oracle.floor(n) for n in names}
    base = np.array(list(oracle.used_by(floors).values()))
    columns = []
    for name in names:
        if floors[name] < 1.0:
            more = np.array(list(oracle.used_by({**floors, name: 1.0}).values()))
            columns.append((more - base) / (1.0 - floors[name]))
        else:
            columns.append(np.zeros_like(base))
    matrix = np.array(columns).T
    return names, matrix, base - matrix @ np.array([floors[n] for n in names])


def best_by_priority(oracle: Oracle) -> dict[str, float]:
    """Floors first; then the largest sum of accuracies of the highest priority, then of the next with what that leaves."""
    names, matrix, constant = _line(oracle)
    at = {n: k for k, n in enumerate(names)}
    at_floors = np.array(list(oracle.used_by({n: oracle.floor(n) for n in names}).values()))
    offered = np.maximum(np.array(list(oracle.offered().values())), at_floors)  # no floor is given up for a backlog
    rows, limits = [*matrix], [*(offered - constant + 1e-9)]
    for name in names:
        for query in oracle.below(name) - {name}:
            row = np.zeros(len(names))
            row[at[query]], row[at[name]] = 1.0, -1.0
            rows.append(row)
            limits.append(0.0)
    bounds = [(oracle.floor(n), 1.0) for n in names]
    found: dict[str, float] = {}
    for priority in sorted({oracle.priority(q) for q in oracle.queries}, reverse=True):
        rung = [q for q in oracle.queries if oracle.priority(q) == priority]
        goal = np.zeros(len(names))
        goal[[at[q] for q in rung]] = -1.0
        solved = linprog(goal, A_ub=np.array(rows), b_ub=np.array(limits), bounds=bounds, method="highs")
        assert solved.success, solved.message
        found |= {q: float(solved.x[at[q]]) for q in rung}
        rows.append(goal)
        limits.append(solved.fun + 1e-6)  # HiGHS works to 1e-7
    return found


def cores_missing(oracle: Oracle) -> float:
    """The smallest addition of cores with which every instance's floor fits on some node, wherever that is."""
    floors = {n: oracle.floor(n) for n in oracle.operators}
    sizes = [min(oracle.cpu(n, floors), ONE_CORE) for n, o in oracle.operators.items() for _ in o.instances]
    nodes = [oracle.available(n.name) for n in oracle.observation.nodes]
    many, count = len(sizes), len(nodes)
    # variables: instance i on node k, then the addition to node k
    goal = np.concatenate([np.zeros(many * count), np.ones(count)])
    stays = [(o.instances[i].node, o.instances[i].movable) for o in oracle.operators.values() for i in range(len(o.instances))]
    least = np.zeros(len(goal))
    for i, (node, movable) in enumerate(stays):
        if not movable:
            least[i * count + [n.name for n in oracle.observation.nodes].index(node)] = 1.0
    once = np.zeros((many, many * count + count))
    fits = np.zeros((count, many * count + count))
    for i, size in enumerate(sizes):
        once[i, i * count : (i + 1) * count] = 1.0
        fits[np.arange(count), i * count + np.arange(count)] = size
    fits[np.arange(count), many * count + np.arange(count)] = -1.0
    solved = milp(
        goal,
        constraints=[LinearConstraint(once, 1.0, 1.0), LinearConstraint(fits, -np.inf, np.array(nodes))],
        integrality=np.concatenate([np.ones(many * count), np.zeros(count)]),
        bounds=Bounds(least, np.concatenate([np.ones(many * count), np.full(count, np.inf)])),
    )
    assert solved.success, solved.message
    return float(solved.fun) / ONE_CORE
