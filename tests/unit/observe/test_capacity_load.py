"""Evaluations in a row, peaks of the past and floors that cannot be met → what a decision on parallelism reads."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from spillway.decide.capacity import detect
from spillway.decide.rescale import plan_rescale
from spillway.model.rescale import Change, Kind, OperatorLoad, RescaleWorld
from spillway.model.rescale_plan import Reason
from spillway.model.topology import Parallelism
from spillway.observe.capacity_load import Evaluated, Past, in_a_row, peaks, rescale_world
from spillway.observe.capacity_world import capacity_world
from spillway.policy import Policy

from tests.support.flows import changed, flow_window
from tests.support.windows import NOON, pipeline

MINUTE = timedelta(minutes=1)


def spec(most: int = 4) -> Any:
    found = pipeline()
    return replace(found, operators=tuple(replace(o, parallelism=Parallelism(max=most)) for o in found.operators))


def past(**values: Any) -> Past:
    return Past(**{"bottleneck_for": {}, "peaks": {}, "window_s": 0.0, **values})


def base(**values: Any) -> RescaleWorld:
    operators = tuple(
        OperatorLoad(name=o, application=a.name, parallelism=9, node=a.node, buckets=8)
        for a in pipeline().applications
        for o in a.operators
    )
    return RescaleWorld(now=NOON, operators=operators, **values)


def world(found: Any, before: Past, **values: Any) -> RescaleWorld:
    return rescale_world(base(**values), spec(), found, detect(capacity_world(found), Policy()).as_dict(), before)


def test_what_was_measured_is_put_beside_what_is_stored() -> None:
    made = world(flow_window(), past(bottleneck_for={"heavy": 2}, peaks={"taxi.green:union": 170.0}, window_s=600.0))
    heavy = made.operator("heavy")
    assert heavy is not None
    assert (heavy.parallelism, heavy.max, heavy.node, heavy.buckets) == (1, 4, "n2", 8)
    assert (heavy.rate, heavy.capacity, heavy.utilisation, heavy.bottleneck_for) == (200.0, 400.0, 0.5, 2)
    edges = {e.name: e for e in made.edges}
    assert (edges["taxi.green:union"].arrival, edges["taxi.green:union"].peak) == (100.0, 170.0)
    assert edges["taxi.yellow:union"].peak == 100.0, "what arrives now is a peak too"
    assert (edges["union:heavy"].selectivity, edges["union:heavy"].arrival) == (1.0, None), "what is written to it follows"
    assert (made.window_s, made.floors_infeasible) == (600.0, False)
    assert RescaleWorld.from_json(made.to_json()) == made


def test_a_rate_of_which_a_part_is_missing_is_missing() -> None:
    made = world(changed(flow_window(), "edges", 0, flow=None), past())
    union = made.operator("union")
    assert union is not None
    assert union.rate is None


def test_a_change_after_the_window_is_none_yet() -> None:
    def change(minutes: int) -> Change:
        at, who = NOON + minutes * MINUTE, {"operator": "heavy", "application": "heavy"}
        return Change(at=at, **who, kind=Kind.EXECUTORS, executors_from=1, executors_to=2)

    assert world(flow_window(), past(), history=(change(-5), change(5))).history == (change(-5),)


def test_a_bottleneck_that_persists_is_scaled_up_to_what_arrives() -> None:
    full = flow_window(rate=300.0, able=400.0)
    for count, reason in ((2, Reason.NOT_PERSISTENT), (3, Reason.BOTTLENECK_PERSISTS)):
        plan = plan_rescale(world(full, past(bottleneck_for={"heavy": count})), Policy()).plan("heavy")
        assert plan.reason is reason
    assert plan.executors_to >= 2
    assert plan.needed_rate == pytest.approx(600.0)


INFEASIBLE = {"queries": ["heavy"], "cores_needed": 1.0, "instances_needed": {"heavy": 2}}


@pytest.mark.parametrize(
    ("floors", "short"),
    [
        ([INFEASIBLE] * 4, 2),
        ([None, None, INFEASIBLE, INFEASIBLE], 2),
        ([None, None, None, INFEASIBLE], None),
        ([INFEASIBLE, INFEASIBLE, INFEASIBLE, None], None),
        ([], None),
    ],
)
def test_floors_that_cannot_be_met_are_evidence(floors: list[Any], short: int | None) -> None:
    made = world(flow_window(rate=300.0, able=400.0), past(floors=floors, bottleneck_for={"heavy": 1}))
    heavy = made.operator("heavy")
    assert heavy is not None
    assert made.floors_infeasible is (short is not None)
    assert heavy.instances_short == (short or 0)
    plan = plan_rescale(made, Policy()).plan("heavy")
    assert plan.reason is (Reason.FLOORS_INFEASIBLE if short else Reason.NOT_PERSISTENT)


# ---- in a row ----


def rows(*named: str, minutes: tuple[int, ...] = ()) -> list[Evaluated]:
    """Evaluations, the newest first: `a` names a, `-` nobody, `?` could not tell."""
    ago = minutes or tuple(range(len(named)))
    verdict = {"-": "keeps_up", "?": "not_known"}
    return [
        Evaluated(
            at=NOON - n * MINUTE, verdict=verdict.get(names, "bottleneck"), bottlenecks=() if names in "-?" else tuple(names)
        )
        for n, names in zip(ago, named, strict=True)
    ]


@pytest.mark.parametrize(
    ("evaluations", "counts"),
    [
        (rows(), {}),
        (rows("-", "a"), {}),
        (rows("a", "a", "a"), {"a": 3}),
        (rows("ab", "a", "ab"), {"a": 3, "b": 1}),
        (rows("a", "b", "a"), {"a": 1}),
        (rows("a", "-", "a"), {"a": 1}),
        (rows("a", "?", "a"), {"a": 2}),
        (rows("?", "a", "a"), {"a": 2}),
        (rows("a", "a", "a", minutes=(0, 3, 7)), {"a": 2}),
        (rows("?", "?"), {}),
    ],
)
def test_a_row_ends_with_another_name_or_a_gap_and_not_with_an_evaluation_that_could_not_tell(
    evaluations: list[Evaluated], counts: dict[str, int]
) -> None:
    assert in_a_row(evaluations, 3 * MINUTE) == counts


def test_a_row_begins_anew_with_a_change() -> None:
    assert in_a_row(rows("a", "a", "a", "a"), 3 * MINUTE, since=NOON - 2 * MINUTE) == {"a": 2}


# ---- peaks ----


def test_peaks_go_back_as_far_as_nothing_is_missing() -> None:
    seen = {NOON - n * MINUTE: {"t:a": float(n)} for n in (0, 1, 9, 30)}
    assert peaks(seen, NOON, 10 * MINUTE) == ({"t:a": 9.0}, 540.0)
    assert peaks({}, NOON, 10 * MINUTE) == ({}, 0.0)
    assert peaks({NOON - 11 * MINUTE: {"t:a": 1.0}}, NOON, 10 * MINUTE) == ({}, 0.0), "nobody knows what arrived since"
