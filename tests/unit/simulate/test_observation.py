"""What the controller sees of the twin: the form of the live cycle, what is there and nothing else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from spillway.inject.profiles import Constant, Piecewise, Ramp, Sine, Step
from spillway.model.qod import Observation
from spillway.policy import Policy
from spillway.simulate.engine import Twin
from spillway.simulate.learning import Learner
from spillway.simulate.observation import floors, observation, warming
from spillway.simulate.watch import Watch, Window
from spillway.simulate.world import Costs, Load, Physics, TwinEdge, TwinOperator, World
from twin_worlds import EXACT, randomly, shipped, single, together


def seen(world: World, *ends: float, policy: Policy | None = None, keeps: dict[int, float] | None = None) -> list[Window]:
    rules = policy or Policy()
    twin = Twin(world, rules, seed=1)
    watch = Watch(twin, seed=1)
    twin.keep[list(keeps or {})] = list((keeps or {}).values())
    windows = []
    for end in ends:
        twin.advance(end)
        windows.append(watch.close())
    return windows


def observed(world: World, window: Window, policy: Policy | None = None) -> Observation:
    return observation(world, window, warming(window, floors(world), policy or Policy()))


@pytest.mark.parametrize("seed", range(30))
def test_it_is_what_decisions_take_and_survives_the_interchange(seed: int) -> None:
    world = randomly(seed)
    for window in seen(world, 15.0, 30.0, 45.0):
        found = observed(world, window)
        found.check()
        assert Observation.from_json(found.to_json()) == found


def test_rates_of_what_keeps_up() -> None:
    world = single(300.0)
    *_, window = seen(world, 15.0, 30.0, 45.0, keeps={0: 0.4})
    found = observed(world, window)
    (edge,), (query,) = found.edges, found.operators
    assert edge.out_rate == pytest.approx(300.0) and edge.lag == 0 and edge.keep == 0.4
    assert query.instances[0].in_rate == pytest.approx(120.0, rel=0.05)
    assert query.instances[0].cpu == pytest.approx(12.0, rel=0.1)
    assert found.nodes[0].cpu == query.instances[0].cpu
    assert window.accuracy[0] == pytest.approx(0.4, abs=0.02) and window.current[0] == pytest.approx(0.4, abs=0.02)


def test_what_falls_behind_has_a_lower_current_accuracy_and_a_lag_but_sheds_nothing() -> None:
    *_, window = seen(single(1_950.0), 120.0, 240.0, policy=Policy(batch_rows_first=3_900))
    assert window.current[0] == pytest.approx(0.5, abs=0.03)
    assert window.accuracy[0] == 1.0
    assert window.lag_s[0] == pytest.approx(120.0, rel=0.1)


def test_a_rate_that_rises_is_not_an_overload() -> None:
    """What is in flight at the ends of a window distorts nothing."""
    windows = seen(single(Ramp(start=10, end=700, over_s=120)), *(15.0 * n for n in range(1, 9)))
    assert [float(w.current[0]) for w in windows] == pytest.approx([1.0] * 8)


def test_the_instances_of_an_operator_share_its_rows() -> None:
    world = single(600.0, instances=("n1", "n2", "n2"), cores=2.0)
    *_, window = seen(world, 15.0, 30.0)
    rates = [i.in_rate for i in observed(world, window).operators[0].instances]
    assert rates == pytest.approx([200.0] * 3, rel=0.01)


def test_what_is_not_known_is_missing_and_not_zero() -> None:
    """A batch that takes longer than the window, and what reads from its operator."""
    slow = seen(single(300.0, per_kept_s=0.05), 15.0)[0]
    assert np.isnan(slow.processed[0])
    instance = observed(single(300.0, per_kept_s=0.05), slow).operators[0].instances[0]
    assert instance.in_rate is None and instance.cpu is not None
    world = single(300.0, per_kept_s=0.05)
    below = TwinOperator(name="below", nodes=("n2",), priority=1, min_accuracy=0.1)
    first = replace(world.operators[0], priority=None, min_accuracy=None)
    chain = replace(world, operators=(first, below), edges=(*world.edges, TwinEdge(producer="query", consumer="below")))
    found = observed(chain, seen(chain, 15.0)[0])
    assert [e.out_rate for e in found.edges] == [pytest.approx(300.0), None]


def test_nothing_to_do_is_a_rate_of_zero() -> None:
    window = seen(single(0.0), 15.0)[0]
    found = observed(single(0.0), window)
    assert found.edges[0].out_rate == 0.0 and found.operators[0].instances[0].in_rate == 0.0
    assert found.operators[0].instances[0].cpu == 0.0


def test_nodes_and_pipelines_are_there_when_they_are() -> None:
    run = shipped("thesis_2")
    early, late = run.cycles[0].window, run.cycles[20].window
    names = [{o.name for o in observed(run.world, w).operators} for w in (early, late)]
    assert names[1] - names[0] == {"knn/classify"}
    assert "knn.points:knn/classify" not in {e.name for e in observed(run.world, early).edges}
    joining = shipped("thesis_1")
    assert [n.name for n in observed(joining.world, joining.cycles[0].window).nodes] == ["n1"]
    assert [n.name for n in observed(joining.world, joining.cycles[-1].window).nodes] == ["n1", "n2"]


def test_priorities_and_floors_are_those_of_queries_and_an_operator_owes_the_highest_floor_below_it() -> None:
    run = shipped("thesis_1")
    operators = {o.name: o for o in observed(run.world, run.cycles[0].window).operators}
    assert {n: (o.priority, o.min_accuracy) for n, o in operators.items()} == {
        "union": (None, None), "light": (1, 0.4), "heavy": (1, 0.6),
    }  # fmt: skip
    assert dict(zip((o.name for o in run.world.operators), floors(run.world).tolist(), strict=True)) == {
        "union": 0.6, "light": 0.4, "heavy": 0.6,
    }  # fmt: skip


def test_an_instance_warms_up_until_its_operator_has_its_minimum_or_for_a_while() -> None:
    world = single(1_200.0, physics=replace(EXACT, down_s=10.0))
    policy = Policy(qod_warm_up_s=40.0)
    twin = Twin(world, policy, seed=1)
    watch = Watch(twin, seed=1)
    twin.advance(60.0)
    watch.close()
    twin.move(0, 1)
    twin.advance(66.0)
    down = watch.close()
    assert not down.up[0] and warming(down, floors(world), policy).tolist() == [True]
    assert observation(world, down, warming(down, floors(world), policy)).operators[0].instances[0].in_rate is None
    twin.advance(90.0)
    up = watch.close()
    assert up.current[0] >= 0.1 and warming(up, floors(world), policy).tolist() == [False]
    behind = replace(up, current=np.array([0.05]))
    assert warming(behind, floors(world), policy).tolist() == [True]
    assert warming(replace(behind, age_s=np.array([40.0])), floors(world), policy).tolist() == [False]


def test_measured_cpu_is_as_noisy_as_asked() -> None:
    world = single(500.0, physics=Physics(cold_s=0.0, cpu_noise=0.05))
    cpu = np.array([w.cpu[0] for w in seen(world, *(6.0 * n for n in range(1, 60)))[5:]])
    assert 0.03 < cpu.std() / cpu.mean() < 0.09


def test_costs_are_learned_from_windows_and_are_those_of_the_world() -> None:
    costs = Costs(fixed_s=0.2, driver_s=0.0, wait_s=0.1, per_arrived_s=2e-4, per_kept_s=5e-4)
    world = single(Step(before=200, after=700, at_s=200.0))
    world = replace(world, operators=(replace(world.operators[0], costs=costs),))
    policy = Policy(cpu_model="affine", qod_warm_up_s=1.0)
    twin = Twin(world, policy, seed=1)
    watch, learner = Watch(twin, seed=1), Learner(twin, policy)
    for number, keep in enumerate((1.0, 0.8, 0.5, 0.3) * 7):
        twin.keep[0] = keep
        twin.advance(15.0 * (number + 1))
        learner.see(watch.close())
        if number == 2:
            assert learner.costs() == {}, "three windows teach nothing"
    found = learner.costs()[0]
    assert found.fixed == pytest.approx(10.0, rel=0.15), "0.2 s every two seconds"
    assert found.per_arrived == pytest.approx(0.02, rel=0.15)
    assert found.per_kept == pytest.approx(0.05, rel=0.15)


@pytest.mark.parametrize("calm", [0, 10])
def test_what_a_batch_did_counts_in_the_windows_in_which_it_ran(calm: int) -> None:
    """Under overload much of a batch that ends in a window ran, and was paid for, in the window before. Rows read and kept then
    make up for each other, so without calm windows before it cannot be told what either costs."""
    costs = Costs(fixed_s=0.2, driver_s=0.0, wait_s=0.1, per_arrived_s=2.5e-4, per_kept_s=2.5e-4)
    world = single(Piecewise(((15.0 * calm, Sine(mean=800, amplitude=500, period_s=90)), (400.0, Constant(2600)))))
    world = replace(world, operators=(replace(world.operators[0], costs=costs),))
    policy = Policy(cpu_model="affine", qod_warm_up_s=1.0)
    twin = Twin(world, policy, seed=1)
    watch, learner = Watch(twin, seed=1), Learner(twin, policy)
    for number, keep in enumerate((1.0,) * calm + (1.0, 0.6, 0.4, 0.2, 0.3, 0.7) * 2):
        twin.keep[0] = keep
        twin.advance(15.0 * (number + 1))
        learner.see(watch.close())
    if not calm:
        assert learner.costs() == {}
        return
    found = learner.costs()[0]
    assert found.per_arrived == pytest.approx(0.025, rel=0.2)
    assert found.per_kept == pytest.approx(0.025, rel=0.2)


def test_two_pipelines_on_one_topic_both_get_all_of_it() -> None:
    world = replace(together(Constant(100)), loads=(Load(topic="events", rate=Constant(100), times=2.0),))
    window = seen(world, 30.0)[0]
    assert window.out_rate.tolist() == pytest.approx([200.0, 200.0]) and window.offered.tolist() == pytest.approx([200.0])
