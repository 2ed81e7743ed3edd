"""The gates of an evaluation of capacity: on what was measured, on what was found in it, and on what is proposed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache

from spillway.gates.capacity_suites import detected_suites, measured_suites, proposed_suites
from spillway.gates.capacity_tables import Found, Proposed, detected, measured, proposed
from spillway.gates.run import DECISION, OBSERVATION, Gate
from spillway.gates.verdict import Verdict
from spillway.model.capacity_window import CapacityWindow


@cache
def _measured_gate(ahead_s: tuple[float, float]) -> Gate:
    return Gate(OBSERVATION, measured_suites(ahead_s))


@cache
def _detected_gate() -> Gate:
    return Gate(DECISION, detected_suites())


@cache
def _proposed_gate() -> Gate:
    return Gate(DECISION, proposed_suites())


def warm_up(ahead_s: tuple[float, float]) -> None:
    """Builds the suites, so that the first evaluation does not have to."""
    _measured_gate(ahead_s)
    _detected_gate()
    _proposed_gate()


def check_measured(windows: Mapping[str, CapacityWindow], ahead_s: tuple[float, float]) -> Verdict:
    """`ahead_s`: how far clocks may run ahead of the store's, least and most (`Policy.qod_ahead_s`)."""
    return _measured_gate(ahead_s).judge(measured(windows.values()), windows, {})


def check_detected(found: Iterable[Found]) -> Verdict:
    every = list(found)
    return _detected_gate().judge(detected(every), [one.pipeline.name for one in every], {})


def check_proposed(found: Iterable[Proposed]) -> Verdict:
    every = list(found)
    return _proposed_gate().judge(proposed(every), [one.pipeline.name for one in every], {})
