"""How far the twin is off a recorded run, as benches print it."""

from __future__ import annotations

from typing import Any

from _common import REPO
from spillway.simulate.against import against
from spillway.simulate.recording import Recording
from spillway.simulate.scenario import load

SCENARIO = REPO / "scenarios" / "twin" / "rush_hour.yaml"


def errors(recording: Recording) -> dict[str, Any]:
    """By operator and measure: the mean error, beside the mean of what was recorded."""
    scenario = load(SCENARIO)
    found = against(scenario.world, scenario.policy, recording, seed=scenario.seed)
    return {
        operator.operator: {
            name: None if error is None else {"recorded": round(error.recorded, 3), "mean_error": round(error.mean, 3)}
            for name, error in (("lag_s", operator.lag_s), ("accuracy", operator.accuracy), ("cpu", operator.cpu))
        }
        for operator in found.operators
    }
