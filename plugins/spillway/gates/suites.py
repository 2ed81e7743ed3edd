"""The business rules, each an expectation with a name and a reason. A row names its pipeline and its subject."""

from __future__ import annotations

from typing import TypeAlias

import great_expectations.expectations as gxe
from great_expectations.expectations.row_conditions import Column

from spillway.model.window import BEYOND_CORES

EPSILON = 1e-6
"""Room for the arithmetic of floating-point numbers."""

Rule: TypeAlias = gxe.Expectation


# ---- what was observed: nodes ----


class ExpectNodeCpuToBeMeasured(gxe.ExpectColumnValuesToNotBeNull):
    column: str = "cpu"
    description: str = "the CPU of every node in use was measured"


class ExpectNodeCpuNotToBeNegative(gxe.ExpectColumnValuesToBeBetween):
    column: str = "cpu"
    min_value: float = 0.0
    description: str = "no node uses less than nothing"


class ExpectNodeCpuWithinItsCores(gxe.ExpectColumnValuesToBeBetween):
    column: str = "beyond_cores"
    max_value: float = BEYOND_CORES
    description: str = "no node uses more CPU than it has cores, but for 5 percent of a core that two clocks may differ by"


# ---- what was observed: instances ----


class ExpectInputRateToBeMeasured(gxe.ExpectColumnValuesToNotBeNull):
    column: str = "in_rate"
    description: str = "the input of every instance that is not warming and has run a batch lately was measured"


class ExpectInstanceCpuToBeMeasured(gxe.ExpectColumnValuesToNotBeNull):
    column: str = "cpu"
    description: str = "the CPU of every instance that is not warming and has run a batch lately was measured"


class ExpectInputRateNotToBeNegative(gxe.ExpectColumnValuesToBeBetween):
    column: str = "in_rate"
    min_value: float = 0.0
    description: str = "no instance takes fewer than no rows"


class ExpectInstanceCpuNotToBeNegative(gxe.ExpectColumnValuesToBeBetween):
    column: str = "cpu"
    min_value: float = 0.0
    description: str = "no instance uses less than nothing"


class ExpectInstanceCpuWithinItsNode(gxe.ExpectColumnValuesToBeBetween):
    column: str = "beyond_node"
    max_value: float = BEYOND_CORES
    description: str = "no instance uses more CPU than its node has cores"


class ExpectInstancesOnKnownNodes(gxe.ExpectColumnValuesToBeInSet):
    column: str = "node_known"
    description: str = "every instance runs on a node that was measured"


class ExpectInstancesOnce(gxe.ExpectCompoundColumnsToBeUnique):
    description: str = "no instance was measured twice"


# ---- what was observed: operators ----


class ExpectNoInstanceMissing(gxe.ExpectColumnValuesToBeBetween):
    column: str = "missing"
    max_value: float = 0.0
    description: str = "every declared instance of an operator that is not warming was measured"


class ExpectNoInstanceTooMany(gxe.ExpectColumnValuesToBeBetween):
    column: str = "missing"
    min_value: float = 0.0
    description: str = "no operator has more instances than declared"


# ---- what was observed: edges ----


class ExpectArrivalRateToBeMeasured(gxe.ExpectColumnValuesToNotBeNull):
    column: str = "out_rate"
    description: str = "what arrives on every edge was measured, unless one of its ends is warming or has run no batch lately"


class ExpectArrivalRateNotToBeNegative(gxe.ExpectColumnValuesToBeBetween):
    column: str = "out_rate"
    min_value: float = 0.0
    description: str = "no topic shrinks"


class ExpectKeepInForceToBeAShare(gxe.ExpectColumnValuesToBeBetween):
    column: str = "keep"
    min_value: float = 0.0
    max_value: float = 1.0
    description: str = "every keep in force lies between 0 and 1"


class ExpectLagNotToBeNegative(gxe.ExpectColumnValuesToBeBetween):
    column: str = "lag"
    min_value: float = 0.0
    description: str = "no reader is ahead of what was written"


# ---- what was observed: clocks, on every table ----


class ExpectClocksToAgree(gxe.ExpectColumnValuesToBeBetween):
    column: str = "ahead_s"
    description: str = "nobody dates what he measures later than it was stored, or earlier than storing takes"


# ---- what was decided ----


class ExpectEveryEdgeToBeDecided(gxe.ExpectColumnValuesToNotBeNull):
    column: str = "keep"
    description: str = "every edge that is declared has a keep"


class ExpectEdgesToBeDecidedOnce(gxe.ExpectCompoundColumnsToBeUnique):
    description: str = "no edge has two keeps"


class ExpectKeepToBeAShare(gxe.ExpectColumnValuesToBeBetween):
    column: str = "keep"
    min_value: float = 0.0
    max_value: float = 1.0
    description: str = "every keep lies between 0 and 1"


class ExpectEveryKeepToHaveAReason(gxe.ExpectColumnValueLengthsToBeBetween):
    column: str = "reason"
    min_value: int = 1
    description: str = "every keep says why"


class ExpectEveryQueryToBeDecided(gxe.ExpectColumnValuesToNotBeNull):
    column: str = "promised"
    description: str = "every query that is declared is promised an accuracy"


class ExpectKeepWithinFloor(gxe.ExpectColumnValuesToBeBetween):
    column: str = "above_floor"
    min_value: float = -EPSILON
    description: str = "no query falls below its floor, unless the decision says that the floors cannot be met"


class ExpectPromiseToBeDelivered(gxe.ExpectColumnValuesToBeBetween):
    column: str = "beside_promise"
    max_value: float = EPSILON
    description: str = "the keeps deliver the accuracy that the decision promises each query"


class ExpectAccuracyToRiseSlowly(gxe.ExpectColumnValuesToBeBetween):
    column: str = "beyond_raise"
    max_value: float = EPSILON
    description: str = "no query gains more accuracy than one cycle may give, but for what it lacks to its floor"


class ExpectInputsToBeEquallyAccurate(gxe.ExpectColumnValuesToBeBetween):
    column: str = "spread"
    max_value: float = EPSILON
    description: str = "all inputs of an operator deliver the same accuracy"


def observation_suites(ahead_s: tuple[float, float]) -> dict[str, list[Rule]]:
    """The rules by table; how far clocks may run ahead of the store's, least and most."""
    settled = Column("settled") == 1
    least, most = ahead_s

    def clocks() -> Rule:
        return ExpectClocksToAgree(min_value=least, max_value=most)

    return {
        "nodes": [
            ExpectNodeCpuToBeMeasured(),
            ExpectNodeCpuNotToBeNegative(),
            ExpectNodeCpuWithinItsCores(),
            clocks(),
        ],
        "instances": [
            ExpectInstancesOnce(column_list=["pipeline", "operator", "executor"]),
            ExpectInstancesOnKnownNodes(value_set=[True]),
            ExpectInputRateToBeMeasured(row_condition=settled),
            ExpectInstanceCpuToBeMeasured(row_condition=settled),
            ExpectInputRateNotToBeNegative(),
            ExpectInstanceCpuNotToBeNegative(),
            ExpectInstanceCpuWithinItsNode(),
            clocks(),
        ],
        "operators": [ExpectNoInstanceMissing(), ExpectNoInstanceTooMany(), clocks()],
        "edges": [
            ExpectArrivalRateToBeMeasured(row_condition=settled),
            ExpectArrivalRateNotToBeNegative(),
            ExpectKeepInForceToBeAShare(),
            ExpectLagNotToBeNegative(),
            clocks(),
        ],
    }


def decision_suites() -> dict[str, list[Rule]]:
    return {
        "keeps": [
            ExpectEveryEdgeToBeDecided(),
            ExpectEdgesToBeDecidedOnce(column_list=["pipeline", "edge"]),
            ExpectKeepToBeAShare(),
            ExpectEveryKeepToHaveAReason(),
        ],
        "queries": [
            ExpectEveryQueryToBeDecided(),
            ExpectKeepWithinFloor(),
            ExpectPromiseToBeDelivered(),
            ExpectAccuracyToRiseSlowly(),
        ],
        "consumers": [ExpectInputsToBeEquallyAccurate()],
    }
