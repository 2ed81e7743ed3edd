"""Worlds for the tests of the twin: one operator, the taxi pipeline in small, and random ones."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path

from spillway.decide.qod import decide
from spillway.inject.profiles import Burst, Constant, Profile, Sine, Step
from spillway.model.qod import Decision, Observation
from spillway.policy import Policy
from spillway.simulate.run import Run, play
from spillway.simulate.scenario import load
from spillway.simulate.world import Costs, Load, Physics, TwinEdge, TwinNode, TwinOperator, World

REPO = Path(__file__).resolve().parents[3]
SCENARIOS = REPO / "scenarios" / "twin"
EXACT = Physics(cold_s=0.0, cpu_noise=0.0)
"""Nothing is cold and nothing is measured wrong."""


def single(
    rate: Profile | float,
    *,
    per_kept_s: float = 1e-3,
    instances: tuple[str, ...] = ("n1",),
    cores: float = 1.0,
    slots: float = 1.0,
    target_s: float = 4.0,
    wait_s: float = 0.1,
    physics: Physics = EXACT,
) -> World:
    """One query on one topic; whoever it costs more than the rows is left out."""
    costs = Costs(fixed_s=0.0, driver_s=0.0, wait_s=wait_s, per_kept_s=per_kept_s)
    query = TwinOperator(
        name="query", nodes=instances, costs=costs, slots=slots, target_s=target_s, priority=1, min_accuracy=0.1
    )  # fmt: skip
    return World(
        nodes=tuple(TwinNode(name=name, cores=cores) for name in ("n1", "n2")),
        operators=(query,),
        edges=(TwinEdge(topic="events", consumer="query"),),
        loads=(Load(topic="events", rate=Constant(rate) if isinstance(rate, int | float) else rate),),
        physics=physics,
    )


def together(rate: Profile, *, important: int = 5, other: int = 1) -> World:
    """Two queries that cost the same share one core."""
    costs = Costs(fixed_s=0.02, driver_s=0.02, wait_s=0.1, per_kept_s=1e-3)
    return World(
        nodes=(TwinNode(name="n1", cores=1.0, background=3.0),),
        operators=tuple(
            TwinOperator(name=name, nodes=("n1",), costs=costs, priority=priority, min_accuracy=0.2)
            for name, priority in (("important", important), ("other", other))
        ),
        edges=tuple(TwinEdge(topic="events", consumer=name) for name in ("important", "other")),
        loads=(Load(topic="events", rate=rate),),
    )


def randomly(seed: int) -> World:
    """Layers of operators on a few nodes, with rates that change."""
    chance = random.Random(seed)
    nodes = tuple(
        TwinNode(name=f"n{k}", cores=chance.choice((0.5, 1.0, 4.0)), background=chance.uniform(0, 30))
        for k in range(chance.randint(1, 4))
    )
    rates: tuple[Profile, ...] = (
        Constant(chance.uniform(0, 500)),
        Step(before=50, after=chance.uniform(100, 2000), at_s=20),
        Sine(mean=300, amplitude=250, period_s=37),
        Burst(base=5, peak=900, every_s=11, length_s=3),
    )
    loads = tuple(Load(topic=f"t{k}", rate=chance.choice(rates), times=chance.uniform(0.3, 1.5)) for k in range(3))
    operators: list[TwinOperator] = []
    edges: list[TwinEdge] = []
    for k in range(chance.randint(2, 7)):
        name = f"o{k}"
        costs = Costs(
            fixed_s=chance.uniform(0, 0.1),
            driver_s=chance.choice((0.0, 0.05)),
            wait_s=chance.uniform(0, 0.3),
            per_arrived_s=chance.uniform(0, 2e-4),
            per_kept_s=chance.uniform(0, 2e-3),
            output=chance.choice((0.0, 0.37, 1.0, 2.5)),
        )
        where = tuple(chance.choice(nodes).name for _ in range(chance.randint(1, 3)))
        operators.append(
            TwinOperator(
                name=name,
                nodes=where,
                costs=costs,
                trigger_s=chance.choice((0.5, 1.0, 2.0)),
                target_s=chance.choice((1.0, 4.0)),
                from_s=chance.choice((0.0, 0.0, 7.3)),
            )
        )
        upstream = [o.name for o in operators[:-1]]
        chosen = sorted({chance.choice(upstream) for _ in range(2)}) if upstream and chance.random() < 0.7 else []
        edges += [TwinEdge(producer=producer, consumer=name) for producer in chosen]
        if not any(edge.consumer == name for edge in edges) or chance.random() < 0.3:
            edges.append(TwinEdge(topic=chance.choice(loads).topic, consumer=name))
    read = {edge.producer for edge in edges}
    final = tuple(
        o if o.name in read else TwinOperator(**{**_fields(o), "priority": chance.randint(1, 3), "min_accuracy": 0.2})
        for o in operators
    )
    return World(nodes=nodes, operators=final, edges=tuple(edges), loads=loads)


def _fields(operator: TwinOperator) -> dict[str, object]:
    return {name: getattr(operator, name) for name in TwinOperator.__slots__}


def literal(observation: Observation, policy: Policy) -> Decision:
    """The papers' cycle."""
    return decide(observation, policy, paper=True)


def shipped(name: str, how: str = "controlled", seed: int | None = None) -> Run:
    """A run of a shipped scenario; made once, because several tests look at it."""
    return _shipped(name, how, seed)


@cache
def _shipped(name: str, how: str, seed: int | None) -> Run:
    scenario = load(SCENARIOS / f"{name}.yaml")
    controller = {"controlled": decide, "paper": literal, "nobody": None}[how]
    chance = scenario.seed if seed is None else seed
    return play(scenario.world, scenario.policy, duration_s=scenario.duration_s, seed=chance, controller=controller)
