"""Windows become worlds, and decisions the parts of their pipelines again."""

from __future__ import annotations

from dataclasses import replace

import pytest
from spillway.act.moves import choose
from spillway.decide.qod import decide
from spillway.model.qod import Cost, Observation
from spillway.model.topology import Application, Pipeline, Query
from spillway.model.window import Declared, Window
from spillway.observe.window import unmoved
from spillway.observe.world import age_s, keeps_before, observation, part, worlds
from spillway.policy import Policy

from tests.support.windows import changed, pipeline, window

TAXI, ADS = pipeline("taxi"), pipeline("ads", priorities=(9, 2), floors=(0.5, 0.1))


def test_the_world_is_what_the_interchange_reads():
    found = observation(
        window(TAXI, ADS), ["taxi", "ads"], {}, {("taxi", "heavy"): Cost(fixed=1.0, per_arrived=0.1, per_kept=0.2)}, Policy()
    )
    assert Observation.from_json(found.to_json()) == found
    assert [o.name for o in found.operators] == ["ads/union", "ads/light", "ads/heavy", "taxi/union", "taxi/light", "taxi/heavy"]
    heavy = found.operators[-1]
    assert (heavy.priority, heavy.min_accuracy, heavy.cost) == (1, 0.3, Cost(fixed=1.0, per_arrived=0.1, per_kept=0.2))
    assert found.operators[3].priority is None, "only queries carry a promise"
    assert [e.name for e in found.edges][:2] == ["taxi.yellow:taxi/union", "taxi.green:taxi/union"]
    assert (found.cycle_s, found.age_s, found.now) == (15.0, 1.0, "2026-05-01T12:00:00+00:00")


def test_pipelines_outside_the_world_are_load_of_their_nodes():
    alone = observation(window(TAXI, ADS), ["taxi"], {}, {}, Policy())
    assert {o.name.split("/")[0] for o in alone.operators} == {"taxi"}
    assert alone.nodes[0].cpu == observation(window(TAXI, ADS), ["taxi", "ads"], {}, {}, Policy()).nodes[0].cpu


def test_what_is_remembered_goes_back_under_the_names_of_the_world():
    remembered = {"taxi": {"keeps": {"union:heavy": 0.4, "taxi.yellow:union": 0.9}, "raise_ready": {"heavy": 1}}}
    found = observation(changed(window(TAXI), "edges", 1, keep=0.7), ["taxi"], remembered, {}, Policy())
    assert found.previous is not None
    assert found.previous.keeps == {
        "taxi.yellow:taxi/union": 0.9, "taxi.green:taxi/union": 0.7, "taxi/union:taxi/light": 1.0, "taxi/union:taxi/heavy": 0.4,
    }, "an edge nobody decided on yet keeps what is in force"  # fmt: skip
    assert found.previous.raise_ready == {"taxi/heavy": 1}
    assert keeps_before(found, TAXI) == {
        "taxi.yellow:union": 0.9, "taxi.green:union": 0.7, "union:light": 1.0, "union:heavy": 0.4,
    }  # fmt: skip


@pytest.mark.parametrize(("application", "waiting"), [("front", {"light", "heavy"}), ("heavy", {"heavy"}), ("other", set())])
def test_while_a_change_is_prepared_nothing_behind_it_is_raised(application: str, waiting: set[str]) -> None:
    found = observation(replace(window(TAXI), preparing=frozenset({("taxi", application)})), ["taxi"], {}, {}, Policy())
    assert {o.name for o in found.operators if not o.may_rise} == {f"taxi/{name}" for name in waiting}
    assert Observation.from_json(found.to_json()) == found


@pytest.mark.parametrize(
    ("application", "ready"),
    [("front", {"taxi/light": 2, "taxi/heavy": 2}), ("heavy", {"taxi/light": 1, "taxi/heavy": 2}), ("other", {"taxi/light": 1})],
)
def test_behind_what_has_just_grown_the_first_window_may_raise(application: str, ready: dict[str, int]) -> None:
    remembered = {"taxi": {"keeps": {}, "raise_ready": {"light": 1}}}
    settling = frozenset({("taxi", "front"), ("taxi", "heavy")})
    grown = replace(window(TAXI), settling=settling, enlarged=frozenset({("taxi", application)}))
    found = observation(grown, ["taxi"], remembered, {}, Policy(qod_raise_cycles=3))
    assert found.previous is not None and found.previous.raise_ready == ready


SPARE = {
    "fresh": ({}, True),
    "as old as may be": ({"age_s": 45.0}, True),
    "stale": ({"age_s": 45.1}, False),
    "unknown": ({"cpu": None}, False),
    "not a number": ({"cpu": float("nan")}, False),
    "negative": ({"cpu": -1.0}, False),
    "more than it has": ({"cpu": 406.0}, False),
    "a clock ahead": ({"ahead_s": 2.1}, False),
    "a clock behind": ({"ahead_s": -3.6}, False),
}


@pytest.mark.parametrize("state", SPARE)
def test_a_node_nobody_runs_on_is_there_only_if_its_metrics_can_be_believed(state):
    """Moves go to such nodes, and no gate looks at them."""
    values, there = SPARE[state]
    found = window(TAXI)
    found = replace(found, nodes=(*found.nodes, replace(found.nodes[0], node="n3", **values)))
    assert [n.name for n in observation(found, ["taxi"], {}, {}, Policy()).nodes] == ["n1", "n2", *["n3"] * there]


def test_a_node_in_use_is_there_whatever_was_measured():
    found = changed(window(TAXI), "nodes", 1, age_s=100.0)
    assert [n.name for n in observation(found, ["taxi"], {}, {}, Policy()).nodes] == ["n1", "n2"]


def test_a_decision_falls_into_parts_that_together_are_all_of_it():
    busy = window(TAXI, ADS, cpu=90.0)
    decision = decide(observation(busy, ["taxi", "ads"], {}, {}, Policy()), Policy())
    parts = {spec.name: part(decision, spec, busy.nodes_of(spec.name)) for spec in (TAXI, ADS)}
    assert sum(len(p["edges"]) for p in parts.values()) == len(decision.edges)
    assert [e["name"] for e in parts["taxi"]["edges"]] == [e.name for e in TAXI.edges]
    assert {e["name"]: e["keep"] for e in parts["taxi"]["edges"]} == {
        e.name: decision.keep(name)
        for e, name in zip(
            TAXI.edges,
            ["taxi.yellow:taxi/union", "taxi.green:taxi/union", "taxi/union:taxi/light", "taxi/union:taxi/heavy"],
            strict=True,
        )
    }
    assert set(parts["ads"]["queries"]) == {"light", "heavy"}
    assert set(parts["taxi"]["remember"]["keeps"]) == {e.name for e in TAXI.edges}
    assert set(parts["taxi"]["expected"]["accuracy"]) == {"union", "light", "heavy"}
    assert set(parts["taxi"]["expected"]["cpu"]) == {"n1", "n2"}


def test_only_the_pipeline_whose_query_is_below_its_floor_is_infeasible():
    tight = window(pipeline("taxi", floors=(1.0, 1.0)), pipeline("ads", priorities=(9, 9), floors=(0.0, 0.0)), cpu=100.0)
    tight = replace(tight, nodes=tuple(replace(n, cores=1, cpu=100.0) for n in tight.nodes))
    tight = replace(tight, edges=tuple(replace(e, out_rate=1000.0) for e in tight.edges))
    decision = decide(observation(tight, ["taxi", "ads"], {}, {}, Policy()), Policy())
    assert decision.infeasible is not None
    assert part(decision, pipeline("ads"), ["n1"])["infeasible"] is None
    assert part(decision, pipeline("ads"), ["n1"])["feasible"] is True
    taxi = part(decision, pipeline("taxi"), ["n1"])
    assert set(taxi["infeasible"]["queries"]) <= {"light", "heavy"}
    assert taxi["infeasible"]["cores_needed"] > 0
    assert set(taxi["infeasible"]["instances_needed"]) == {"union", "light", "heavy"}


def test_a_query_gives_way_to_a_more_important_one_of_another_pipeline():
    """Both on the two cores of the same nodes, which are full: the one with the higher priority keeps more."""
    low, high = pipeline("low", priorities=(1, 1), floors=(0.0, 0.0)), pipeline("high", priorities=(7, 7), floors=(0.0, 0.0))
    full = window(low, high, cpu=50.0)
    full = replace(full, nodes=tuple(replace(n, cores=1, cpu=100.0) for n in full.nodes))
    full = replace(full, edges=tuple(replace(e, out_rate=3 * (e.out_rate or 0.0)) for e in full.edges))
    decision = decide(observation(full, ["low", "high"], {}, {}, Policy()), Policy())
    assert decision.queries["high/heavy"].desired > decision.queries["low/heavy"].desired


@pytest.mark.parametrize(
    ("modes", "expected"),
    [
        ({"a": "apply"}, {"apply": ["a"]}),
        ({"a": "advise"}, {"advise": ["a"]}),
        ({}, {}),
        ({"b": "apply", "a": "advise"}, {"apply": ["b"], "advise": ["a", "b"]}),
    ],
)
def test_what_is_applied_does_not_count_on_what_is_only_advised(modes, expected):
    assert worlds(modes) == expected


def test_age_is_that_of_the_oldest_measurement_in_use():
    old = changed(window(TAXI, ADS), "nodes", 1, age_s=33.0)
    assert age_s(old, ["taxi"]) == 33.0
    slow = changed(window(TAXI, ADS), "operators", 2, age_s=50.0)
    assert age_s(slow, ["taxi"]) == 50.0
    assert age_s(slow, ["ads"]) == 1.0


def test_an_old_batch_is_no_sign_of_age_where_nothing_arrives():
    idle = changed(window(TAXI), "operators", 2, age_s=500.0)
    idle = changed(idle, "edges", 3, out_rate=0.0)
    assert age_s(idle, ["taxi"]) == 1.0


def test_operators_of_one_application_share_its_executors_and_their_slots():
    front, heavy = TAXI.applications
    wide = replace(TAXI, applications=(replace(front, slots=3), replace(heavy, slots=2)))
    found = {o.name: o.instances for o in observation(window(wide), ["taxi"], {}, {}, Policy()).operators}
    for name in ("taxi/union", "taxi/light"):
        assert [(i.executor, i.cores) for i in found[name]] == [("taxi/front/0", 3.0), ("taxi/front/1", 3.0)]
    assert [(i.executor, i.cores) for i in found["taxi/heavy"]] == [(None, 2.0)], "it shares them with nobody"


FRONT = replace(
    TAXI,
    operators=(
        TAXI.operators[0],
        replace(TAXI.operators[1], query=Query(priority=1, min_accuracy=0.6)),
        replace(TAXI.operators[2], query=Query(priority=2, min_accuracy=0.9)),
    ),
    applications=(
        Application(name="front", operators=("union", "light"), node="n1"),
        Application(name="heavy", operators=("heavy",), node="n1"),
    ),
)


def crowded(stay: frozenset[tuple[str, str]]) -> Window:
    """All on the core of n1, front with 60 % in all; of n2 45 % is free: room for light alone."""
    found = window(FRONT)
    cpu = {"union": 25.0, "light": 35.0, "heavy": 40.0}
    rate = {"union": 200.0, "light": 200.0, "heavy": 120.0}
    return replace(
        found,
        instances=tuple(replace(i, node="n1", cpu=cpu[i.operator], in_rate=rate[i.operator]) for i in found.instances),
        nodes=tuple(replace(n, cores=1, cpu={"n1": 100.0, "n2": 55.0}[n.node]) for n in found.nodes),
        unmoved=stay,
    )


def test_floors_do_not_count_on_a_move_that_was_refused():
    first = observation(crowded(frozenset()), ["taxi"], {}, {}, Policy())
    decision = decide(first, Policy())
    assert decision.feasible and [(m.operator, m.target) for m in decision.moves] == [("taxi/light", "n2")]
    asked = part(decision, FRONT, ["n1"])["moves"]
    request, refused = choose(asked, FRONT, first)
    assert request is None and refused == ["front would move to n2 as a whole, with 60 % of a core where 45 % is left: it stays"]
    found = unmoved([{"pipeline": "taxi", "operator": m["operator"], "application": None} for m in asked], declared(FRONT))
    assert found == {("taxi", "front")}
    second = observation(crowded(found), ["taxi"], {}, {}, Policy())
    assert {o.name: [i.movable for i in o.instances] for o in second.operators} == {
        "taxi/union": [False], "taxi/light": [False], "taxi/heavy": [True],
    }  # fmt: skip
    decision = decide(second, Policy())
    assert decision.moves == ()
    assert decision.infeasible is not None and decision.infeasible.queries == ("taxi/light",)


def test_a_move_that_failed_names_its_application():
    failed = {"pipeline": "taxi", "operator": None, "application": "heavy"}
    assert unmoved([failed, {**failed, "pipeline": "gone"}], declared(FRONT)) == {("taxi", "heavy")}


def declared(spec: Pipeline) -> dict[str, Declared]:
    return {spec.name: Declared(pipeline=spec, version=1, mode="apply")}
