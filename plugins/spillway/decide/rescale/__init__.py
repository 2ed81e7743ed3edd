"""Rescale: how many executors and buckets operators get, on which node, and how the change is made.

| file | question it answers |
|---|---|
| plan.py | `plan_rescale`: one plan for every application, with every pass that changed its target |
| request.py | `plan_request`: what a person asks for, or why it is refused |
| demand.py | what every operator should carry (rates at the sources, passed forward) |
| curve.py | how capacity grows with parallelism, learned from an operator's own past |
| target.py | when to scale up or down, and to how many executors |
| passes.py | what limits a target: tolerance, step, bounds, buckets, quota, cool-down, frozen period, what did not work |
| kind.py | restart, executors, hand-over or shadow, and the pause to expect |
| steps.py | a plan as ordered steps (algorithm 3), with what going back means |
| judge.py | did a change bring what was expected? |
| examples.py | small named worlds |
"""

from spillway.decide.rescale.judge import judge
from spillway.decide.rescale.plan import plan_rescale
from spillway.decide.rescale.request import plan_request
from spillway.decide.rescale.steps import STEPS, inverse, steps

__all__ = ["STEPS", "inverse", "judge", "plan_request", "plan_rescale", "steps"]
