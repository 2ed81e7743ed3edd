"""The engine: no row is lost or doubled, no CPU comes from nowhere, and a batch is what it is on the line."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from spillway.inject.profiles import Constant, Step, due
from spillway.policy import Policy
from spillway.simulate.engine import Twin
from spillway.simulate.watch import Watch, levels
from spillway.simulate.world import Load, Physics, TwinEdge, TwinNode, TwinOperator, World, WorldError
from twin_worlds import EXACT, randomly, single


def rows(twin: Twin, operator: int = 0) -> int:
    """Processed by an operator."""
    return int(twin.processed[twin.consumer == operator].sum())


def counted(twin: Twin) -> None:
    """Rows in = processed + shed + queued, on every edge, and what leaves a producer arrives at its consumers."""
    assert (twin.arrived == twin.processed + twin.shed + twin.queued).all()
    assert (twin.shed >= 0).all() and (twin.queued >= 0).all() and (twin.read <= twin.arrived).all()
    for number, edge in enumerate(twin.world.edges):
        if edge.producer is None:
            sent = next(load for load in twin.world.loads if load.topic == edge.topic)
            assert twin.arrived[number] == np.floor(sent.rate.events(twin.now) * sent.times + 1e-6)
        else:
            producer = [o.name for o in twin.world.operators].index(edge.producer)
            assert twin.arrived[number] == twin.written[producer]
            ratio = twin.world.operators[producer].costs.output
            assert twin.written[producer] == np.floor(rows(twin, producer) * ratio + 1e-6)


@pytest.mark.parametrize("seed", range(25))
def test_no_row_is_lost_or_doubled_whatever_happens(seed: int) -> None:
    twin, random = Twin(randomly(seed), Policy(batch_rows_first=500), seed=seed), np.random.default_rng(seed)
    for _ in range(12):
        edge = int(random.integers(len(twin.keep)))
        twin.publish({edge: float(random.uniform(0, 1))})
        if random.random() < 0.3:
            twin.move(int(random.integers(len(twin.node))), int(random.integers(len(twin.world.nodes))))
        twin.advance(twin.now + 5.0)
        counted(twin)
    assert twin.processed.sum() > 0


@pytest.mark.parametrize("seed", range(25))
def test_no_more_cpu_is_used_than_there_is(seed: int) -> None:
    twin = Twin(randomly(seed), Policy(), seed=seed)
    usable = np.array([max(0.0, n.cores - n.background / 100) for n in twin.world.nodes])
    before, own = twin.node_s.copy(), twin.cpu_s.copy()
    for _ in range(300):
        twin.advance(twin.now + 0.1)
        assert (twin.node_s - before <= usable * 0.1 + 1e-9).all()
        assert (twin.cpu_s - own <= twin.slots * 0.1 + 1e-9).all()
        before, own = twin.node_s.copy(), twin.cpu_s.copy()
    assert twin.cpu_s.sum() <= twin.node_s.sum() + 1e-9


def test_chance_is_all_that_differs_between_seeds() -> None:
    def after(seed: int) -> tuple[bytes, ...]:
        twin = Twin(randomly(3), Policy(), seed=seed)
        twin.publish({0: 0.5, 1: 0.3})
        twin.advance(60.0)
        return twin.processed.tobytes(), twin.shed.tobytes(), twin.cpu_s.tobytes(), twin.lag.tobytes()

    assert after(1) == after(1)
    assert after(1) != after(2)


def test_an_operator_carries_what_its_cost_allows() -> None:
    """A batch of four seconds: 0.1 s of waiting, the rest at a millisecond a row."""
    twin = Twin(single(5_000.0), Policy(batch_rows_first=3_900), seed=1)
    twin.advance(60.0)
    done = rows(twin)
    twin.advance(460.0)
    assert (rows(twin) - done) / 400.0 == pytest.approx(3_900 / 4.0, rel=0.01)


def test_a_bounded_batch_follows_its_target() -> None:
    twin = Twin(single(5_000.0, target_s=2.0), Policy(batch_rows_first=100_000), seed=1)
    twin.advance(400.0)
    assert twin.bound[0] * 1e-3 == pytest.approx(2.0, rel=0.3)


def test_two_instances_do_twice_as_much_only_where_there_are_cores() -> None:
    def done(**world: object) -> int:
        twin = Twin(single(5_000.0, **world), Policy(), seed=1)  # type: ignore[arg-type]
        twin.advance(200.0)
        return rows(twin)

    one = done()
    assert done(instances=("n1", "n2")) == pytest.approx(2 * one, rel=0.05)
    assert done(instances=("n1", "n1")) == pytest.approx(one, rel=0.05)
    assert done(instances=("n1", "n1"), cores=2.0) == pytest.approx(2 * one, rel=0.05)
    assert done(slots=0.5) == pytest.approx(one / 2, rel=0.05)


def test_without_rows_there_is_no_batch() -> None:
    twin = Twin(single(Step(before=0, after=100, at_s=30.0)), Policy(), seed=1)
    twin.advance(29.0)
    assert twin.batches[0] == 0 and twin.cpu_s[0] == 0
    twin.advance(40.0)
    assert twin.batches[0] > 0


def test_a_batch_begins_at_its_trigger() -> None:
    twin = Twin(single(100.0), Policy(), seed=1)
    twin.advance(60.0)
    assert twin.batches[0] == 29, "one every two seconds; at 0 there is nothing to read, and that of 60 has not begun"


def test_a_keep_counts_from_the_next_batch_on() -> None:
    """A batch of 3 000 rows begins at 2.0 and takes 3.1 s; a keep that is known at 3.0 finds it running."""
    world = single(1_500.0, physics=replace(EXACT, delay_s=1.0))
    twin = Twin(world, Policy(), seed=1)
    twin.advance(2.0)
    twin.publish({0: 0.5})
    twin.advance(5.0)
    assert twin.keep[0] == 0.5 and twin.running[0]
    twin.advance(5.3)
    assert (twin.processed[0], twin.shed[0]) == (3_000, 0)
    twin.advance(12.0)
    assert twin.processed[0] - 3_000 == pytest.approx(twin.shed[0], rel=0.1)


def test_a_keep_is_not_known_before_its_delay() -> None:
    twin = Twin(single(100.0, physics=replace(EXACT, delay_s=4.0)), Policy(), seed=1)
    twin.publish({0: 0.0})
    twin.advance(3.9)
    assert twin.keep[0] == 1.0
    twin.advance(4.2)
    assert twin.keep[0] == 0.0


def test_shedding_is_by_chance_and_as_good_as_chance() -> None:
    twin = Twin(single(500.0, per_kept_s=1e-5), Policy(), seed=1)
    twin.keep[0] = 0.3
    twin.advance(400.0)
    count = int(twin.processed[0] + twin.shed[0])
    share = twin.processed[0] / count
    assert share != 0.3
    assert share == pytest.approx(0.3, abs=4 * (0.21 / count) ** 0.5)


def test_a_moved_instance_leaves_between_batches_is_away_and_is_cold() -> None:
    physics = Physics(down_s=5.0, cold_s=20.0, cold_factor=3.0, cpu_noise=0.0)
    twin = Twin(single(400.0, physics=physics), Policy(), seed=1)
    twin.advance(100.3)
    steady = twin.batches[0]
    twin.move(0, 1)
    twin.advance(100.5)
    assert twin.running[0] and twin.node[0] == 0 and twin.moving == (0,), "it stays until its batch has ended"
    twin.advance(103.0)
    assert twin.node[0] == 1 and not twin.running[0] and not twin.moving
    waiting = int(twin.queued[0])
    twin.advance(104.5)
    assert twin.batches[0] <= steady + 1 and twin.queued[0] > waiting
    assert twin.node_s[1] == 0.0
    before = twin.cpu_s[0]
    twin.advance(125.0)
    cold = (twin.cpu_s[0] - before) / 20
    twin.advance(300.0)
    before, done = twin.cpu_s[0], rows(twin)
    twin.advance(400.0)
    assert twin.node_s[1] > 0
    assert (twin.cpu_s[0] - before) / (rows(twin) - done) == pytest.approx(1e-3, rel=0.02)
    assert cold > 1.5 * 0.4, "what waited and the cold cost more than the usual 40 % of a core"


def test_whoever_moves_leaves_the_others_to_work() -> None:
    twin = Twin(single(400.0, instances=("n1", "n1"), cores=2.0, physics=replace(EXACT, down_s=30.0)), Policy(), seed=1)
    twin.advance(20.0)
    twin.move(0, 1)
    twin.advance(24.0)
    done = rows(twin)
    twin.advance(44.0)
    assert rows(twin) - done == pytest.approx(8_000, rel=0.15)


def test_the_driver_works_before_its_instances_and_is_nobodys_cpu() -> None:
    world = single(400.0)
    operator = world.operators[0]
    world = replace(world, operators=(replace(operator, costs=replace(operator.costs, driver_s=0.3)),))
    twin = Twin(world, Policy(), seed=1)
    twin.advance(100.0)
    batches = int(twin.batches[0])
    assert twin.node_s[0] - twin.cpu_s[0] == pytest.approx(0.3 * batches, rel=0.05)
    assert twin.cpu_s[0] == pytest.approx(1e-3 * rows(twin), rel=0.05)


def test_sources_send_what_the_injector_would() -> None:
    twin = Twin(single(Step(before=3, after=7.5, at_s=10)), Policy(), seed=1)
    twin.advance(33.3)
    assert twin.arrived[0] == due(Step(before=3, after=7.5, at_s=10), 33.3)


def test_a_pipeline_that_stops_begins_no_batch() -> None:
    world = single(400.0)
    twin = Twin(replace(world, operators=(replace(world.operators[0], to_s=20.0),)), Policy(), seed=1)
    twin.advance(24.0)
    done = int(twin.batches[0])
    twin.advance(60.0)
    assert twin.batches[0] == done and not twin.live[0]
    counted(twin)


def _world(**changes: object) -> World:
    return replace(single(1.0), **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"nodes": (TwinNode(name="n1", cores=1), TwinNode(name="n1", cores=2))}, "the node n1 is there twice"),
        ({"operators": (TwinOperator(name="query", nodes=("n9",)),)}, "query is placed on n9, which is no node"),
        ({"operators": (TwinOperator(name="query", nodes=()),)}, "query has no instance"),
        ({"edges": (TwinEdge(topic="events", consumer="other"),)}, "joins an operator that is not in this world"),
        ({"edges": (TwinEdge(topic="else", consumer="query"),)}, "nothing is sent to topic else"),
        ({"edges": (TwinEdge(consumer="query"),)}, "needs either a topic or a producer"),
        ({"edges": ()}, "query reads nothing"),
        (
            {"loads": (Load(topic="events", rate=Constant(1)), Load(topic="events", rate=Constant(2)))},
            "topic events is there twice",
        ),
    ],
)
def test_a_world_that_does_not_fit_together_is_refused(changes: dict[str, object], says: str) -> None:
    with pytest.raises(WorldError, match=says):
        _world(**changes)


def test_a_circle_is_refused() -> None:
    operators = tuple(TwinOperator(name=name, nodes=("n1",)) for name in "ab")
    edges = (TwinEdge(producer="a", consumer="b"), TwinEdge(producer="b", consumer="a"))
    world = World(nodes=(TwinNode(name="n1", cores=1),), operators=operators, edges=edges, loads=())
    with pytest.raises(WorldError, match="a, b read from each other in a circle"):
        Watch(Twin(world, Policy()))


def test_levels_put_producers_first() -> None:
    world = randomly(11)
    seen: set[str] = set()
    for edges in levels(world):
        group = [world.edges[e] for e in edges.tolist()]
        assert all(e.producer is None or e.producer in seen for e in group)
        seen |= {e.consumer for e in group}
