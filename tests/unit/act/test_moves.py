"""Which move is requested, and why others are not."""

from __future__ import annotations

from dataclasses import replace

from spillway.act.moves import choose
from spillway.observe.world import observation
from spillway.policy import Policy

from tests.support.windows import changed, pipeline, window

TAXI = pipeline()


def move(operator: str, source: str = "n1", target: str = "n2") -> dict[str, object]:
    return {"operator": operator, "instance": 0, "from": source, "to": target, "reason": "n1 is full"}


def seen(**nodes: float):  # type: ignore[no-untyped-def]
    found = window(TAXI, cpu=30.0)
    found = replace(found, nodes=tuple(replace(n, cores=2, cpu=nodes.get(n.node, 100.0)) for n in found.nodes))
    return observation(found, ["taxi"], {}, {}, Policy())


def test_an_application_moves_as_a_whole_if_there_is_room_for_all_of_it():
    request, refused = choose([move("light")], TAXI, seen(n2=70.0))
    assert request is not None
    assert (request.application, request.source, request.target, request.reason) == ("front", "n1", "n2", "n1 is full")
    assert refused == []


def test_without_room_for_all_of_it_it_stays_and_the_next_is_looked_at():
    request, refused = choose([move("light"), move("heavy", "n2", "n1")], TAXI, seen(n1=150.0, n2=90.0))
    assert refused == ["front would move to n2 as a whole, with 120 % of a core where 110 % is left: it stays"]
    assert request is not None
    assert request.application == "heavy"


def test_moves_of_one_application_are_refused_once():
    request, refused = choose([move("light"), move("union")], TAXI, seen(n2=150.0))
    assert request is None
    assert len(refused) == 1


def test_what_failed_lately_is_not_tried_again():
    request, refused = choose([move("heavy", "n2", "n1")], TAXI, seen(n1=20.0), [("heavy", "n1")])
    assert request is None
    assert refused == ["a move of heavy to n1 failed lately: it is not tried again yet"]


def test_an_application_of_which_something_is_unknown_stays():
    unknown = observation(changed(window(TAXI), "instances", 1, cpu=None, warming=True), ["taxi"], {}, {}, Policy())
    request, refused = choose([move("light")], TAXI, unknown)
    assert request is None
    assert "is not known" in refused[0]


def test_nothing_to_move():
    assert choose([], TAXI, seen()) == (None, [])


def test_an_application_that_is_being_rescaled_stays():
    request, refused = choose([move("light")], TAXI, seen(n2=70.0), planned={"front"})
    assert request is None
    assert refused == ["front is being rescaled: it stays until that is done"]
