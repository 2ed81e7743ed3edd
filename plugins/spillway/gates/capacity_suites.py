"""The business rules on flow networks, on what is found in them and on what is proposed, each an expectation with a name."""

from __future__ import annotations

import great_expectations.expectations as gxe
from great_expectations.expectations.row_conditions import Column

from spillway.gates.suites import (
    EPSILON,
    ExpectArrivalRateNotToBeNegative,
    ExpectArrivalRateToBeMeasured,
    ExpectClocksToAgree,
    ExpectInstancesOnce,
    ExpectKeepInForceToBeAShare,
    ExpectNoInstanceMissing,
    ExpectNoInstanceTooMany,
    Rule,
)

AT_ONCE_S = 1.0
"""For so long two batches of an operator may seem to run at once: their times are told by milliseconds that were rounded."""


# ---- what was measured ----


class ExpectFlowToBeMeasured(gxe.ExpectColumnValuesToNotBeNull):
    column: str = "flow"
    description: str = "what flows on every edge was measured, unless its consumer has hardly finished a batch"


class ExpectFlowNotToBeNegative(gxe.ExpectColumnValuesToBeBetween):
    column: str = "flow"
    min_value: float = 0.0
    description: str = "no edge carries fewer than no rows"


class ExpectBacklogToBeKnown(gxe.ExpectColumnValuesToNotBeNull):
    column: str = "backlog"
    description: str = "how many rows wait on every edge is known, unless its consumer has hardly finished a batch"


class ExpectBacklogNotToBeNegative(gxe.ExpectColumnValuesToBeBetween):
    column: str = "backlog"
    min_value: float = 0.0
    description: str = "no reader is ahead of what was written"


class ExpectLatencyNotToBeNegative(gxe.ExpectColumnValuesToBeBetween):
    column: str = "latency_ms"
    min_value: float = 0.0
    description: str = "no row is processed before it was written"


class ExpectBusyTimeNotToBeNegative(gxe.ExpectColumnValuesToBeBetween):
    column: str = "busy_s"
    min_value: float = 0.0
    description: str = "no operator works for less than no time"


class ExpectBatchesOneAfterAnother(gxe.ExpectColumnValuesToBeBetween):
    column: str = "overlap_s"
    max_value: float = AT_ONCE_S
    description: str = "no operator runs two batches at once, as two drivers of it would"


class ExpectSelectivityToBeMeasured(gxe.ExpectColumnValuesToNotBeNull):
    column: str = "selectivity"
    description: str = "what an operator puts out for each row it keeps was measured"


class ExpectSelectivityNotToBeNegative(gxe.ExpectColumnValuesToBeBetween):
    column: str = "selectivity"
    min_value: float = 0.0
    description: str = "no operator puts out fewer than no rows"


class ExpectInstanceRowsNotToBeNegative(gxe.ExpectColumnValuesToBeBetween):
    column: str = "rows"
    min_value: float = 0.0
    description: str = "no instance works on fewer than no rows"


# ---- what was found ----


class ExpectFlowToEqualCut(gxe.ExpectColumnValuesToBeBetween):
    column: str = "beside_cut"
    max_value: float = EPSILON
    description: str = "the largest flow and the cut that bounds it are the same"


class ExpectFlowAndCutTogether(gxe.ExpectColumnValuesToBeInSet):
    column: str = "whole"
    description: str = "there is a cut where there is a largest flow, and none where there is none"


class ExpectMaxFlowNotToBeNegative(gxe.ExpectColumnValuesToBeBetween):
    column: str = "max_flow"
    min_value: float = 0.0
    description: str = "the largest flow is not less than nothing"


class ExpectFindingToHaveAReason(gxe.ExpectColumnValueLengthsToBeBetween):
    column: str = "reason"
    min_value: int = 1
    description: str = "every finding says why"


class ExpectBottleneckToBeNamed(gxe.ExpectColumnValuesToBeInSet):
    column: str = "unnamed"
    description: str = "where there is no room left, an operator is named"


class ExpectBottleneckToBeDeclared(gxe.ExpectColumnValuesToBeInSet):
    column: str = "declared"
    description: str = "a bottleneck is an operator of the pipeline"


class ExpectEveryEdgeToBeFoundOnce(gxe.ExpectColumnValuesToBeInSet):
    column: str = "times"
    description: str = "every edge that is declared has a capacity or says that none is known, and no edge has two"


class ExpectCapacityNotToBeNegative(gxe.ExpectColumnValuesToBeBetween):
    column: str = "capacity"
    min_value: float = 0.0
    description: str = "no edge could carry fewer than no rows"


class ExpectFlowWithinCapacity(gxe.ExpectColumnValuesToBeBetween):
    column: str = "over"
    max_value: float = 0.0
    description: str = "no edge carries more than it can, but for what measuring may be off by"


class ExpectConfidenceToBeAShare(gxe.ExpectColumnValuesToBeBetween):
    column: str = "confidence"
    min_value: float = 0.0
    max_value: float = 1.0
    description: str = "how sure a capacity is lies between 0 and 1"


class ExpectCapacityToSayItsEstimator(gxe.ExpectColumnValueLengthsToBeBetween):
    column: str = "estimator"
    min_value: int = 1
    description: str = "every capacity says where it came from"


class ExpectRowsToBeConserved(gxe.ExpectColumnValuesToBeBetween):
    column: str = "beside_shares"
    max_value: float = EPSILON
    description: str = "rows into an operator are what its producers and the shares of its edges make of a row at the source"


class ExpectLimitNotToBeNegative(gxe.ExpectColumnValuesToBeBetween):
    column: str = "limit"
    min_value: float = 0.0
    description: str = "no operator lets less than nothing through"


# ---- what is proposed ----


class ExpectPlanForDeclaredOperator(gxe.ExpectColumnValuesToBeInSet):
    column: str = "declared"
    description: str = "a plan is for an operator of one of the declared applications"


class ExpectOnePlanPerApplication(gxe.ExpectCompoundColumnsToBeUnique):
    description: str = "no application has two plans"


class ExpectTargetWithinDeclaredBounds(gxe.ExpectColumnValuesToBeBetween):
    column: str = "beyond_bounds"
    max_value: float = 0.0
    description: str = "the executors are within the declared parallelism of every operator of the application"


class ExpectPlanToBeginWithWhatIs(gxe.ExpectColumnValuesToBeBetween):
    column: str = "beside_present"
    max_value: float = 0.0
    description: str = "a plan begins with the executors that there are"


class ExpectEveryPlanToHaveAReason(gxe.ExpectColumnValueLengthsToBeBetween):
    column: str = "reason"
    min_value: int = 1
    description: str = "every plan, also one that changes nothing, says why"


class ExpectMoreExecutorsToBringMore(gxe.ExpectColumnValuesToBeBetween):
    column: str = "gains"
    min_value: float = 0.0
    description: str = "more executors are expected to carry more"


def measured_suites(ahead_s: tuple[float, float]) -> dict[str, list[Rule]]:
    """The rules by table; how far clocks may run ahead of the store's, least and most."""
    settled = Column("settled") == 1
    least, most = ahead_s

    def clocks() -> Rule:
        return ExpectClocksToAgree(min_value=least, max_value=most)

    return {
        "flow_operators": [
            ExpectNoInstanceMissing(),
            ExpectNoInstanceTooMany(),
            ExpectBusyTimeNotToBeNegative(),
            ExpectBatchesOneAfterAnother(),
            ExpectSelectivityToBeMeasured(row_condition=settled),
            ExpectSelectivityNotToBeNegative(),
            clocks(),
        ],
        "flow_instances": [
            ExpectInstancesOnce(column_list=["pipeline", "operator", "executor"]),
            ExpectInstanceRowsNotToBeNegative(),
            clocks(),
        ],
        "flow_edges": [
            ExpectFlowToBeMeasured(row_condition=settled),
            ExpectFlowNotToBeNegative(),
            ExpectArrivalRateToBeMeasured(row_condition=settled),
            ExpectArrivalRateNotToBeNegative(),
            ExpectBacklogToBeKnown(row_condition=settled),
            ExpectBacklogNotToBeNegative(),
            ExpectKeepInForceToBeAShare(),
            ExpectLatencyNotToBeNegative(),
            clocks(),
        ],
    }


def detected_suites() -> dict[str, list[Rule]]:
    return {
        "findings": [
            ExpectFlowToEqualCut(),
            ExpectFlowAndCutTogether(value_set=[1]),
            ExpectMaxFlowNotToBeNegative(),
            ExpectFindingToHaveAReason(),
            ExpectBottleneckToBeNamed(value_set=[0]),
        ],
        "named": [ExpectBottleneckToBeDeclared(value_set=[True])],
        "capacities": [
            ExpectEveryEdgeToBeFoundOnce(value_set=[1]),
            ExpectCapacityNotToBeNegative(),
            ExpectFlowWithinCapacity(),
            ExpectConfidenceToBeAShare(),
            ExpectCapacityToSayItsEstimator(),
        ],
        "gains": [ExpectRowsToBeConserved(), ExpectLimitNotToBeNegative()],
    }


def proposed_suites() -> dict[str, list[Rule]]:
    return {
        "plans": [
            ExpectPlanForDeclaredOperator(value_set=[True]),
            ExpectOnePlanPerApplication(column_list=["pipeline", "application"]),
            ExpectTargetWithinDeclaredBounds(),
            ExpectPlanToBeginWithWhatIs(),
            ExpectEveryPlanToHaveAReason(),
            ExpectMoreExecutorsToBringMore(),
        ]
    }
