"""The decision of one cycle: what is known of the world in, what every edge keeps and what moves out."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from spillway.decide.qod import hold
from spillway.decide.qod.cpu import CORE, available, capped, on_nodes, required
from spillway.decide.qod.damping import Damped, Order, damp, lift
from spillway.decide.qod.fill import ALIKE
from spillway.decide.qod.flight import for_rows_on_the_way
from spillway.decide.qod.paper import plan as literal_plan
from spillway.decide.qod.plan import Plan, plan
from spillway.decide.qod.propagate import downward, keeps, upward
from spillway.decide.qod.words import KEEP_UNKNOWN, Words
from spillway.decide.qod.world import Floats, World, columns
from spillway.model.qod import (
    Decision,
    EdgeKeep,
    Expected,
    Infeasible,
    Move,
    Observation,
    Operator,
    Previous,
    QueryState,
    Reason,
)
from spillway.policy import Policy

METRICS_STALE = "METRICS_STALE"
SAME = 1e-9
"""Keeps closer than this are the same."""


def decide(observation: Observation, policy: Policy, *, paper: bool = False) -> Decision:
    """Keep for every edge, and which instances move where.

    `paper` gives the papers' literal cycle: no backlog, no damping, no limit on raising, CPU proportional to rows.

    >>> from spillway.decide.qod.examples import chain_observation
    >>> decision = decide(chain_observation(), Policy())
    >>> round(decision.keep("yellow:union"), 4), decision.keep("union:bill")
    (0.7073, 1.0)
    >>> decision.edges[0].reason
    'keeps 70.73 %: n1 has 87 % of a core for operators that would need 123 % of a core, most of it bill'
    """
    with without_collector():  # nothing here refers to itself, and of many thousand new objects none is garbage yet
        return _decide(observation, policy, paper)


@contextmanager
def without_collector() -> Iterator[None]:
    """Python looks for cycles among all objects again and again while many are made; not now."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _decide(observation: Observation, policy: Policy, paper: bool) -> Decision:
    if words := hold.stale(observation, policy):
        return _held(observation, None, (), words)
    world = columns(observation.nodes, observation.operators, observation.edges)
    missing, lost = hold.missing(world)
    if lost.all() and missing:
        return _held(observation, None, tuple(missing), f"{missing[0]} is missing")
    if not lost.any():
        return _decided(world, observation.previous or Previous(), policy, paper, tuple(missing))
    gone = {o.name for o, is_lost in zip(observation.operators, lost.tolist(), strict=True) if is_lost}
    rest = columns(
        observation.nodes,
        tuple(o for o in observation.operators if o.name not in gone),
        tuple(e for e in observation.edges if e.consumer not in gone),
        warming={i.node for o in observation.operators if o.name in gone for i in o.instances if i.warming},
    )
    decided = _decided(rest, observation.previous or Previous(), policy, paper, tuple(missing))
    held = _held(observation, gone, tuple(missing), f"{missing[0]} is missing")
    return _together(observation, decided, held)


def _decided(world: World, previous: Previous, policy: Policy, paper: bool, missing: tuple[str, ...]) -> Decision:
    """Everything that is needed is known."""
    names = [edge.name for edge in world.edges]
    in_force = np.array([previous.keeps.get(n, e.keep) for n, e in zip(names, world.edges, strict=True)], dtype=np.float64)
    query_names = [world.operators[k].name for k in world.query.tolist()]
    lag, keep = hold.lag_unknown(world), hold.keep_unknown(world, in_force)
    in_force = np.where(keep.edges, 1.0, in_force)
    if paper:
        planned = literal_plan(world, seed=policy.qod_seed)
        damped = _undamped(planned.possible)
    else:
        missing = (*missing, *lag.names, *keep.names)
        before = downward(world, in_force)[world.query]
        planned = plan(world, policy, before)
        ready = np.array([previous.raise_ready.get(name, 0) for name in query_names], dtype=np.intp)
        order = Order(world.rank, world.pair_operator, world.pair_query)
        may_rise = world.may_rise & ~(lag.queries | keep.queries)
        damped = damp(before, planned.possible, world.floor, ready, may_rise, policy, order)
        damped = lift(damped, for_rows_on_the_way(world, damped.accuracy, in_force, may_rise, policy.qod_raise_limit))
    words = Words(world, planned, damped, lag.queries, keep, policy)
    edges = _edges(world, damped.accuracy, in_force, words)
    of_operator = upward(world, damped.accuracy)
    return Decision(
        feasible=not len(planned.below_floor),
        edges=edges,
        queries={
            name: QueryState(desired=desired, floor=floor, priority=priority, possible=possible)
            for name, desired, floor, priority, possible in zip(
                query_names,
                damped.accuracy.tolist(),
                world.floor.tolist(),
                world.priority,
                planned.possible.tolist(),
                strict=True,
            )
        },
        moves=tuple(
            Move(
                operator=world.operators[operator := int(world.operator_of[m.instance])].name,
                instance=m.instance - int(world.first_instance[operator]),
                source=world.nodes[m.source].name,
                target=world.nodes[m.target].name,
                reason=words.move(m),
            )
            for m in planned.moves
        ),
        missing=missing,
        infeasible=_infeasible(world, planned),
        remember=Previous(
            keeps={name: edge.keep for name, edge in zip(names, edges, strict=True)},
            raise_ready={name: count for name, count in zip(query_names, damped.ready.tolist(), strict=True) if count},
        ),
        expected=_expected(world, planned, of_operator),
    )


def _undamped(possible: Floats) -> Damped:
    none = np.zeros(len(possible), dtype=bool)
    return Damped(possible, np.zeros(len(possible), dtype=np.intp), none, none, none, none)


def _edges(world: World, accuracy: Floats, in_force: Floats, words: Words) -> tuple[EdgeKeep, ...]:
    of_operator = upward(world, accuracy)
    leading = np.zeros(len(world.operators), dtype=np.intp)
    leads = np.flatnonzero(accuracy[world.pair_query] >= of_operator[world.pair_operator])[::-1]
    leading[world.pair_operator[leads]] = world.pair_query[leads]
    keep = keeps(world, accuracy)
    published = np.abs(keep - in_force) > SAME
    keep = np.where(published, keep, in_force)
    result = []
    for number, edge, value, changes, reaches, query in zip(
        range(len(world.edges)),
        world.edges,
        keep.tolist(),
        published.tolist(),
        of_operator[world.consumer].tolist(),
        leading[world.consumer].tolist(),
        strict=True,
    ):
        code, reason = words.edge(value, reaches, query) if changes or number not in words.blind else KEEP_UNKNOWN
        result.append(
            EdgeKeep(
                producer=edge.producer,
                topic=edge.topic,
                consumer=edge.consumer,
                keep=value,
                published=changes,
                code=code,
                reason=reason,
                expected_accuracy=reaches,
            )
        )
    return tuple(result)


def _infeasible(world: World, planned: Plan) -> Infeasible | None:
    if not len(planned.below_floor):
        return None
    order = sorted(planned.below_floor.tolist(), key=lambda q: (-world.rank[q], q))
    return Infeasible(
        queries=tuple(world.operators[world.query[q]].name for q in order),
        cores_needed=round((sum(planned.addition.values()) + planned.more.cpu) / CORE, 6),
        at={world.nodes[n].name: round(cpu / CORE, 6) for n, cpu in sorted(planned.addition.items())},
        instances_needed={world.operators[t].name: count for t, count in planned.more.instances.items()},
    )


def _expected(world: World, planned: Plan, of_operator: Floats) -> Expected:
    used = on_nodes(world, capped(world, required(world, planned.load, of_operator, planned.floor)))
    whole = CORE * world.cores
    expected = np.minimum(whole - available(world) + used, whole)  # a backlog may ask for more
    return Expected(
        accuracy=dict(zip((o.name for o in world.operators), of_operator.tolist(), strict=True)),
        cpu={n.name: cpu for n, cpu in zip(world.nodes, expected.tolist(), strict=True) if n.cpu is not None},
    )


def _held(observation: Observation, only: set[str] | None, missing: tuple[str, ...], words: str) -> Decision:
    """The last decision stays, for everything or for these operators."""
    previous = observation.previous or Previous()
    edges = tuple(e for e in observation.edges if only is None or e.consumer in only)
    operators = tuple(o for o in observation.operators if only is None or o.name in only)
    world = columns(observation.nodes, operators, edges)
    in_force = [previous.keeps.get(e.name, 1.0 if e.keep is None else e.keep) for e in edges]
    accuracy = downward(world, np.array(in_force, dtype=np.float64))
    names = [operators[k].name for k in world.query.tolist()]
    queries = {
        name: QueryState(desired=desired, floor=floor, priority=priority)
        for name, desired, floor, priority in zip(
            names, accuracy[world.query].tolist(), world.floor.tolist(), world.priority, strict=True
        )
    }
    below = _below(queries)
    return Decision(
        feasible=not below,
        edges=tuple(
            EdgeKeep(
                producer=edge.producer,
                topic=edge.topic,
                consumer=edge.consumer,
                keep=keep,
                published=False,
                code=Reason.METRICS_STALE,
                reason=f"{METRICS_STALE}: {words}, so the last keep of {keep:g} stays",
                expected_accuracy=reaches,
            )
            for edge, keep, reaches in zip(edges, in_force, accuracy[world.consumer].tolist(), strict=True)
        ),
        queries=queries,
        missing=missing,
        infeasible=Infeasible(queries=below, cores_needed=None) if below else None,
        held=METRICS_STALE if only is None else None,
        remember=Previous(keeps={e.name: keep for e, keep in zip(edges, in_force, strict=True)}),
        expected=Expected(accuracy=dict(zip((o.name for o in operators), accuracy.tolist(), strict=True))),
    )


def _below(queries: Mapping[str, QueryState]) -> tuple[str, ...]:
    """Those below their floor, highest priority first."""
    return tuple(sorted((n for n, q in queries.items() if q.desired < q.floor - ALIKE), key=lambda n: -queries[n].priority))


def _together(observation: Observation, decided: Decision, held: Decision) -> Decision:
    """One decision again, in the order of the observation."""
    edges = {e.name: e for e in (*decided.edges, *held.edges)}
    queries: Mapping[str, QueryState] = {**decided.queries, **held.queries}
    accuracy = {**decided.expected.accuracy, **held.expected.accuracy}
    keeps_in_force = {**decided.remember.keeps, **held.remember.keeps}
    operators: tuple[Operator, ...] = observation.operators
    infeasible = decided.infeasible
    if held.infeasible:
        more = infeasible or held.infeasible
        names = {*more.queries, *held.infeasible.queries}
        below = tuple(sorted((o.name for o in operators if o.name in names), key=lambda n: -queries[n].priority))
        infeasible = replace(more, queries=below, cores_needed=None)
    return Decision(
        feasible=infeasible is None,
        edges=tuple(edges[e.name] for e in observation.edges),
        queries={o.name: queries[o.name] for o in operators if o.name in queries},
        moves=decided.moves,
        missing=decided.missing,
        infeasible=infeasible,
        remember=Previous(
            keeps={e.name: keeps_in_force[e.name] for e in observation.edges}, raise_ready=decided.remember.raise_ready
        ),
        expected=Expected(accuracy={o.name: accuracy[o.name] for o in operators}, cpu=decided.expected.cpu),
    )
