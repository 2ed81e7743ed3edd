"""Batches → flow, busy time and capacity: who waits for a trigger is idle, what is shed is free, what is missing stays so."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from spillway.decide.capacity import detect
from spillway.model.capacity import Estimator, Verdict
from spillway.model.window import Interval
from spillway.observe.capacity import EdgePart, WholeBatch, fullest, selectivity, whole_batches, work
from spillway.observe.capacity_world import FORGET, capacity_world, unshed
from spillway.policy import Policy

from tests.support.flows import changed, flow_window

ZERO = datetime.fromtimestamp(0, UTC)
MINUTE = Interval(start=ZERO, end=ZERO + timedelta(seconds=60))


def batch(
    started: float, took: float, kept: int = 100, *, read: int | None = None, out: int | None = 100, driver: float = -900.0
):
    part = EdgePart(read=kept if read is None else read, kept=kept)
    return WholeBatch(
        started_at=started, ended_at=started + took, driver_at=driver, busy_s=took, put_out=out, edges={"t:a": part}
    )  # fmt: skip


def run(trigger_s: float, took: float, *, until: float = 60.0, since: float = -20.0, pause: float = 0.0) -> list[WholeBatch]:
    found, at = [], since
    while at + took <= until:
        found.append(batch(at, took))
        at += max(trigger_s, took + pause)
    return found


@pytest.mark.parametrize("shift", [0.0, 0.3, 1.1, 1.9])
def test_a_query_that_waits_for_its_trigger_is_idle_meanwhile(shift: float) -> None:
    done = work(run(2.0, 0.5, since=-20.0 + shift), MINUTE, 2.0)
    assert done.busy_share == pytest.approx(0.25, rel=0.02)
    assert sum(b.kept for b in done.inside) / done.span_s == pytest.approx(50.0, rel=0.02)


@pytest.mark.parametrize("shift", [0.0, 1.0, 2.5, 4.9])
@pytest.mark.parametrize("pause", [0.0, 0.04, 0.2])
def test_a_query_that_has_no_time_to_wait_is_busy_all_the_time(shift: float, pause: float) -> None:
    """However the window cuts its batches, and whatever Spark does between two of them."""
    done = work(run(2.0, 5.0, since=-23.0 + shift, pause=pause), MINUTE, 2.0)
    assert done.busy_share == pytest.approx(1.0, abs=0.005)
    assert sum(b.kept for b in done.inside) / done.span_s == pytest.approx(100.0 / (5.0 + pause), rel=0.005)


def test_a_pause_that_is_longer_than_that_is_idle() -> None:
    assert work(run(2.0, 5.0, pause=5.0), MINUTE, 2.0).busy_share == pytest.approx(0.5, abs=0.05)


def test_one_batch_in_an_idle_minute_counts_for_the_whole_minute() -> None:
    for started in (-0.4, 0.1, 30.0, 40.0):
        assert work([batch(started, 0.5)], MINUTE, 2.0).span_s == pytest.approx(60.0, abs=0.5)
    long_ago = [batch(-300.0, 0.5), batch(30.0, 0.5)]
    assert work(long_ago, MINUTE, 2.0).span_s == 60.0


def test_a_flow_is_never_above_what_the_batches_show() -> None:
    lone = work([batch(50.0, 9.9)], MINUTE, 2.0)
    assert lone.span_s >= 9.9
    assert 0.0 < lone.busy_share <= 1.0


def test_without_a_batch_in_the_window_nothing_is_known_but_the_last_one() -> None:
    done = work([batch(-30.0, 1.0)], MINUTE, 2.0)
    assert (done.inside, done.span_s, done.busy_share) == ((), None, None)
    assert done.last is not None
    assert work([], MINUTE, 2.0).last is None


def test_two_drivers_of_one_operator_show_as_batches_that_overlap() -> None:
    assert work(run(2.0, 0.5), MINUTE, 2.0).overlap_s == 0.0
    both = sorted([*run(2.0, 1.5), *run(2.0, 1.5, since=-19.0)], key=lambda b: b.started_at)
    assert work(both, MINUTE, 2.0).overlap_s > 10.0


@pytest.mark.parametrize(
    ("one", "tells"),
    [
        (batch(0.0, 1.0), True),
        (batch(0.0, 1.0, kept=0, read=100), False),
        (batch(0.0, 1.0, driver=-29.0), False),
        (batch(0.0, 1.0, driver=-30.0), True),
        (batch(0.0, 0.0), False),
    ],
)
def test_a_batch_tells_what_an_operator_can_do_if_it_had_rows_and_was_hot(one: WholeBatch, tells: bool) -> None:
    assert one.tells(30.0) is tells


def test_selectivity_is_rows_out_for_each_row_that_was_kept() -> None:
    assert selectivity([batch(0.0, 1.0, out=50), batch(2.0, 1.0, kept=300, read=900, out=50)]) == 0.25
    assert selectivity([batch(0.0, 1.0, out=50), batch(2.0, 1.0, out=None)]) is None, "what is missing stays missing"
    assert selectivity([batch(0.0, 1.0, out=50), batch(2.0, 1.0, kept=0, out=None)]) == 0.5, "none is none, also uncounted"
    assert selectivity([batch(0.0, 1.0, kept=0, out=0)]) is None
    assert selectivity([]) is None


def test_few_rows_are_uneven_by_chance() -> None:
    assert fullest([60.0, 40.0]) is None
    assert fullest([600.0, 400.0]) == 1.2
    assert fullest([]) is None


def test_each_batch_of_the_newest_checkpoint_is_there_once() -> None:
    def row(checkpoint: int, number: int, edge: str | None, kept: int = 10) -> dict[str, object]:
        return {
            "checkpoint": checkpoint, "batch_id": number, "started_at": ZERO, "ended_at": ZERO, "driver_at": None,
            "batch_ms": 1500, "output_rows": 7, "edge": edge, "rows_read": 20, "rows_kept": kept, "latency_mean_ms": None,
            "state_rows": 3, "state_bytes": 4,
        }  # fmt: skip

    [first, second] = whole_batches([row(0, 9, "a:x"), row(1, 0, "a:x"), row(1, 0, "b:x", 5), row(1, 1, None)])
    assert (first.kept, first.busy_s, set(first.edges)) == (15, 1.5, {"a:x", "b:x"})
    assert (second.kept, second.edges) == (0, {})


# ---- the flow network ----


def test_an_edge_that_sheds_is_full() -> None:
    """Half of what is offered fits: what is kept is all that fits, so there is no room, though nothing waits."""
    calm = flow_window(rate=150.0)
    [heavy] = [n for n, e in enumerate(calm.edges) if e.edge == "union:heavy"]
    last = len(calm.operators) - 1
    assert detect(capacity_world(calm), Policy()).verdict is Verdict.KEEPS_UP
    shed = changed(changed(calm, "edges", heavy, flow=138.0, keep=0.46), "operators", last, busy_share=0.92)
    shed = changed(shed, "operators", last, batches=tuple(b for b in calm.operators[last].batches))
    world = capacity_world(shed)
    assert next(e for e in world.edges if e.name == "union:heavy").flow == pytest.approx(150.0)
    assert unshed(None, 0.5, 0.5) is None
    assert unshed(100.0, 0.5, None) == 100.0, "how busy it is is not known, so what would flow is not either"


def test_shedding_at_the_source_hides_no_bottleneck() -> None:
    """1600 rows/s are offered, the first operator keeps 700 of them because the last can carry no more than 760."""
    full = flow_window(rate=800.0, able=760.0)
    operators, edges = list(full.operators), list(full.edges)
    for n, e in enumerate(edges):
        full = changed(full, "edges", n, flow=350.0 if e.producer is None else 700.0, keep=0.4375 if e.producer is None else 1.0)
    for n, o in enumerate(operators):
        able = 9000.0 if o.operator != "heavy" else 760.0
        told = tuple(type(b)(rows=b.rows, busy_s=b.rows / able) for b in o.batches)
        full = changed(full, "operators", n, batches=told, busy_share=700.0 / able)
    found = detect(capacity_world(full), Policy())
    assert (found.verdict, found.bottlenecks) == (Verdict.BOTTLENECK, ("heavy",))
    assert found.max_flow is not None
    assert found.max_flow < 800.0


def finding(parallelism: int, **edge: float) -> dict[str, object]:
    return {
        "operators": [{"operator": "heavy", "parallelism": parallelism}],
        "edges": [{"from": "union", "to": "heavy", "capacity": 300.0, "confidence": 0.8, "carried": 250.0, **edge}],
    }


def test_what_was_estimated_before_stands_while_nothing_tells() -> None:
    still = changed(flow_window(), "operators", 2, batches=())
    edge = next(e for e in capacity_world(still, finding(1)).edges if e.name == "union:heavy")
    assert (edge.capacity, edge.confidence, edge.carried) == (300.0, FORGET * 0.8, FORGET * 250.0)
    measured = next(e for e in capacity_world(flow_window(), finding(1)).edges if e.name == "union:heavy")
    assert (measured.capacity, measured.carried) == (None, FORGET * 250.0), "its batches say what it can do"
    rescaled = next(e for e in capacity_world(still, finding(2)).edges if e.name == "union:heavy")
    assert (rescaled.capacity, rescaled.carried) == (None, None), "it had another parallelism then"


def test_what_is_remembered_is_regulated_further() -> None:
    slow = changed(flow_window(), "operators", 2, batches=())
    slow = changed(slow, "edges", 3, latency_ms=20_000.0, flow=280.0)
    found = detect(capacity_world(slow, finding(1)), Policy())
    heavy = next(e for e in found.edges if e.name == "union:heavy")
    assert heavy.estimator is Estimator.FEEDBACK
    assert heavy.capacity == pytest.approx(300.0 - (1000.0 / 10_000.0 - 1000.0 / 20_000.0))


def test_what_is_missing_stays_missing() -> None:
    gap = changed(changed(flow_window(), "edges", 0, flow=None, backlog=None, arrival=None), "operators", 2, batches=())
    world = capacity_world(gap)
    assert (world.edges[0].flow, world.edges[0].backlog, world.edges[0].arrival) == (None, None, None)
    found = detect(world, Policy())
    assert found.verdict is Verdict.NOT_KNOWN
    assert "operators.heavy.capacity" in found.missing


def test_a_world_is_the_same_after_it_was_stored() -> None:
    world = capacity_world(flow_window(), finding(1))
    assert type(world).from_json(world.to_json()) == world


def test_an_operator_that_feeds_others_must_have_shown_what_it_makes_of_its_rows() -> None:
    assert flow_window().unshared() == []
    assert changed(flow_window(), "operators", 0, selectivity=None).unshared() == ["union"]
    assert changed(flow_window(), "operators", 2, selectivity=None).unshared() == [], "nobody reads what heavy puts out"
