"""Why, in words: the reason of every edge and every move, for the person who looks at it afterwards."""

from __future__ import annotations

import numpy as np

from spillway.decide.qod.cpu import CORE, in_executors, on_nodes, required
from spillway.decide.qod.damping import Damped
from spillway.decide.qod.fill import ALIKE, NOTHING
from spillway.decide.qod.floors import Moved, warming
from spillway.decide.qod.hold import Unknown
from spillway.decide.qod.plan import Plan
from spillway.decide.qod.uses import placed
from spillway.decide.qod.world import Flags, Floats, Ints, World, matches
from spillway.model.qod import Reason
from spillway.policy import Policy

EVERYTHING = (Reason.NOTHING_TO_SHED, "keeps everything: there is CPU for all of it")
HANDED_ON = (Reason.SHED_EARLIER, "hands on all that arrives: what has to go is dropped earlier")
KEEP_UNKNOWN = (
    Reason.KEEP_UNKNOWN,
    "is taken to keep everything, for what it keeps is not known: it may be lowered, but not raised",
)


def percent(share: float) -> str:
    """
    >>> percent(0.625), percent(0.004), percent(1.0)
    ('62.5 %', '0.4 %', '100 %')
    """
    return f"{100.0 * share:.4g} %"


def cores(cpu: float) -> str:
    """
    >>> cores(95.0), cores(1234.0)
    ('95 % of a core', '12.3 cores')
    """
    return f"{cpu:.0f} % of a core" if cpu < 1000.0 else f"{cpu / 100.0:.1f} cores"


class Words:
    """The reasons of one decision. What several edges share is worked out once."""

    def __init__(
        self, world: World, plan: Plan, damped: Damped, lag_unknown: Flags, keep_unknown: Unknown, policy: Policy
    ) -> None:
        self.world, self.plan, self.policy = world, plan, policy
        everything = required(world, plan.load, np.ones(len(world.operators)), plan.floor)
        self.wanted = on_nodes(world, everything).tolist()
        self.in_executor, self.executor_cores = in_executors(world, everything).tolist(), world.executor_cores.tolist()
        self.members = world.member_operator.tolist()
        self.first_member = np.searchsorted(world.member_executor, np.arange(len(world.executor_cores) + 1)).tolist()
        node, operator, count = placed(world)
        self.heaviest = _last(node, operator, count * everything[operator], len(world.nodes)).tolist()
        row, pair = matches(operator, world.pair_operator, len(world.operators))
        query = world.pair_query[pair]
        self.foremost = _last(node[row], query, world.rank[query], len(world.nodes)).tolist()
        self.offered = plan.available.tolist()
        self.usable = plan.usable.tolist()
        self.limit = plan.limit.tolist()
        self.possible, self.accuracy = plan.possible.tolist(), damped.accuracy.tolist()
        self.floor, self.rank = world.floor.tolist(), world.rank.tolist()
        self.below = set(plan.below_floor.tolist())
        self.warm = (plan.most < 1.0) & (plan.possible >= plan.most - ALIKE)
        self.small, self.waits, self.limited = damped.small.tolist(), damped.waits.tolist(), damped.limited.tolist()
        self.lifted, self.may_rise = damped.lifted.tolist(), world.may_rise.tolist()
        self.ready, self.lag_unknown = damped.ready.tolist(), lag_unknown.tolist()
        self.keep_unknown, self.blind = keep_unknown.queries.tolist(), set(np.flatnonzero(keep_unknown.edges).tolist())
        self.known: dict[int, tuple[Reason, str]] = {}

    def edge(self, keep: float, accuracy: float, query: int) -> tuple[Reason, str]:
        """Of an edge whose consumer has `accuracy`, which is what `query` below it needs."""
        if accuracy >= 1.0 - ALIKE:
            return EVERYTHING
        if keep >= 1.0 - ALIKE:
            return HANDED_ON
        if query not in self.known:
            self.known[query] = self._query(query)
        code, why = self.known[query]
        share = percent(keep) if abs(keep - accuracy) < ALIKE else f"{percent(keep)} of what arrives, {percent(accuracy)} of all"
        return code, f"keeps {share}{why}"

    def _query(self, query: int) -> tuple[Reason, str]:
        possible = percent(self.possible[query])
        name = self.world.operators[self.world.query[query]].name
        if self.lifted[query]:
            floor = percent(self.floor[query])
            return Reason.ON_THE_WAY, f" for now: rows on the way to {name} were shed before, and its floor is {floor} of all"
        if self.small[query]:
            tolerance = percent(self.policy.qod_tolerance)
            return Reason.WITHIN_TOLERANCE, f" as before: {possible} for {name} is a change below the tolerance of {tolerance}"
        if self.waits[query] and self.lag_unknown[query]:
            return Reason.LAG_UNKNOWN, f" as before: {possible} may be possible for {name}, but how much is waiting is not known"
        if self.waits[query] and self.keep_unknown[query]:
            return Reason.KEEP_UNKNOWN, f" as before: {possible} may be possible for {name}, but what edges keep is not known"
        if self.waits[query] and not self.may_rise[query]:
            why = "while a change of what runs on the way to it is being prepared"
            return Reason.RAISE_WAITS, f" as before: {possible} is possible for {name}, but nothing is raised {why}"
        if self.waits[query]:
            seen = f"for {self.ready[query]} of {self.policy.qod_raise_cycles} cycles"
            return Reason.RAISE_WAITS, f" as before: {possible} is possible for {name} {seen}"
        if self.limited[query]:
            most = percent(self.policy.qod_raise_limit)
            return Reason.RAISE_LIMITED, f", on the way to {possible} for {name}: at most {most} more per cycle"
        if query in self.below:
            floor = percent(self.floor[query])
            return Reason.BELOW_FLOOR, f", INFEASIBLE: {name} is below its floor of {floor}{self._limit(query)[1]}"
        if self.warm[query]:
            return Reason.WARMING, f", the least {name} is promised, while {self._warming_node(query)} warms up"
        code, why = self._limit(query)
        if self.possible[query] <= self.floor[query] + ALIKE:
            return Reason.AT_FLOOR, f", the floor of {name}{why}"
        return code, why

    def _limit(self, query: int) -> tuple[Reason, str]:
        resource = self.limit[query]
        world = self.world
        if resource == NOTHING:
            return Reason.CPU_BOUND, ""
        below = query in self.below  # floors may use the headroom
        if resource >= len(world.nodes):
            return Reason.CORE_BOUND, self._executor(resource, below)
        heavy = self.heaviest[resource]
        has = self.offered[resource] if below else max(self.usable[resource], 0.0)
        why = (
            f": {world.nodes[resource].name} has {cores(has)} for operators that would need "
            f"{cores(self.wanted[resource])}, most of it {world.operators[heavy].name}"
        )
        first = self.foremost[resource]
        if self.rank[first] > self.rank[query]:
            why += (
                f"; priority {world.priority[query]} gives way to {world.operators[world.query[first]].name} "
                f"of priority {world.priority[first]}"
            )
        return Reason.CPU_BOUND, why

    def _executor(self, resource: int, below: bool) -> str:
        world, executor = self.world, resource - len(self.world.nodes)
        members = self.members[self.first_member[executor] : self.first_member[executor + 1]]
        names = " and ".join(world.operators[k].name for k in members)
        who = f"an instance of {names}" if len(members) == 1 else f"an executor of {names}"
        of_it = self.executor_cores[executor]
        has = "has one core" if of_it == 1.0 else f"has {of_it:g} cores"
        if not below and self.usable[resource] < CORE * of_it:
            has = f"may use {cores(self.usable[resource])}"
        return f": {who} would need {cores(self.in_executor[executor])} and {has}"

    def _warming_node(self, query: int) -> str:
        world = self.world
        above = world.pair_operator[world.pair_query == query]
        slow = warming(world)[world.node_of] & np.isin(world.operator_of, above)
        return world.nodes[int(world.node_of[slow][0])].name

    def move(self, move: Moved) -> str:
        world = self.world
        source, target = world.nodes[move.source].name, world.nodes[move.target].name
        offered = self.offered[move.source]
        name = world.operators[world.operator_of[move.instance]].name
        if not move.short:
            return f"{name} makes room on {source} for the floor of what has to move there; {target} can hold its own"
        return (
            f"the floors on {source} need {cores(offered + move.short)} and it has {cores(offered)}; "
            f"{target} has room for the {cores(move.required)} that {name} needs for its floor"
        )


def _last(index: Ints, value: Ints, order: Ints | Floats, size: int) -> Ints:
    """By index, the value with the highest order; the first one among equals."""
    ascending = len(order) - 1 - np.argsort(order[::-1], kind="stable")
    result = np.zeros(size, dtype=np.intp)
    result[index[ascending]] = value[ascending]
    return result
