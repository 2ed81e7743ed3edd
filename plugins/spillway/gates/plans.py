"""Gates between the steps of a plan to rescale: before anything changes, after the first batches, and on the state itself."""

from __future__ import annotations

from functools import cache
from typing import Any

import great_expectations.expectations as gxe
from great_expectations.expectations.row_conditions import Column

from spillway.gates.run import Gate
from spillway.gates.suites import Rule
from spillway.gates.tables import Rows
from spillway.gates.verdict import Failure

# ---- before anything changes: one row per plan ----


class ExpectNothingToHaveChangedMeanwhile(gxe.ExpectColumnValuesToBeNull):
    column: str = "overtaken"
    description: str = "the application and the operator are as they were when the plan was made"


class ExpectApplicationToRun(gxe.ExpectColumnValuesToBeInSet):
    column: str = "lives"
    description: str = "the driver of the application runs and gives heartbeats"


class ExpectNoMoveUnderWay(gxe.ExpectColumnValuesToBeNull):
    column: str = "moving"
    description: str = "the application is not on its way to another node"


class ExpectExecutorsWithinBounds(gxe.ExpectColumnValuesToBeBetween):
    column: str = "beyond_bounds"
    min_value: float = 0.0
    max_value: float = 0.0
    description: str = "the executors are within the declared parallelism of every operator of the application"


class ExpectBucketForEveryExecutor(gxe.ExpectColumnValuesToBeBetween):
    column: str = "buckets_short"
    max_value: float = 0.0
    description: str = "there are at least as many buckets as executors"


class ExpectStateToBeCommitted(gxe.ExpectColumnValuesToNotBeNull):
    column: str = "batch_id"
    description: str = "an operator with state has a committed batch to go on from"


class ExpectKindToSuffice(gxe.ExpectColumnValuesToBeNull):
    column: str = "beyond_kind"
    description: str = "the kind of the plan can change what it is to change"


class ExpectEngineToRepartition(gxe.ExpectColumnValuesToBeNull):
    column: str = "engine"
    description: str = "where buckets change, the engine can repartition state"


class ExpectTargetNodeToBeThere(gxe.ExpectColumnValuesToBeInSet):
    column: str = "node_seen"
    description: str = "the node it is to run on was measured lately"


# ---- after the first batches ----


class ExpectFirstBatchesToCommit(gxe.ExpectColumnValuesToBeBetween):
    column: str = "batches_short"
    max_value: float = 0.0
    description: str = "the first batches after the change have committed without a failure in between"


class ExpectOffsetsWithoutGap(gxe.ExpectColumnValuesToBeBetween):
    column: str = "gap"
    max_value: float = 0.0
    description: str = "every batch begins where the one before it ended: nothing is skipped"


class ExpectOffsetsWithoutOverlap(gxe.ExpectColumnValuesToBeBetween):
    column: str = "overlap"
    max_value: float = 0.0
    description: str = "every batch begins where the one before it ended: nothing is read twice"


# ---- the state itself: one row per operator ----


class ExpectEveryBucketToBeCounted(gxe.ExpectColumnValuesToBeBetween):
    column: str = "uncounted"
    max_value: float = 0.0
    description: str = "every bucket was counted before and after"


class ExpectStateRowsToBeEqual(gxe.ExpectColumnValuesToBeBetween):
    column: str = "rows_beside"
    min_value: float = 0.0
    max_value: float = 0.0
    description: str = "there are as many rows of state after the change as before"


class ExpectStateChecksumToBeEqual(gxe.ExpectColumnValuesToBeInSet):
    column: str = "same_checksum"
    description: str = "the checksum of all state is the same after the change as before"


def plan_suites() -> dict[str, list[Rule]]:
    stateful = Column("stateful") == 1
    return {
        "plan": [
            ExpectNothingToHaveChangedMeanwhile(),
            ExpectApplicationToRun(value_set=[True]),
            ExpectNoMoveUnderWay(),
            ExpectExecutorsWithinBounds(),
            ExpectBucketForEveryExecutor(),
            ExpectStateToBeCommitted(row_condition=stateful),
            ExpectKindToSuffice(),
            ExpectEngineToRepartition(),
            ExpectTargetNodeToBeThere(value_set=[True]),
        ],
        "batches": [ExpectFirstBatchesToCommit()],
        "offsets": [ExpectOffsetsWithoutGap(), ExpectOffsetsWithoutOverlap()],
        "state": [ExpectEveryBucketToBeCounted(), ExpectStateRowsToBeEqual(), ExpectStateChecksumToBeEqual(value_set=[True])],
    }


@cache
def _gate() -> Gate:
    return Gate("plan", plan_suites())


def check_plan(pipeline: str, **tables: Rows) -> tuple[int, tuple[Failure, ...]]:
    """How many rules looked at the rows, and which of them failed. A rule that cannot be evaluated fails."""
    suites = plan_suites()
    named: dict[str, Any] = {table: [{"pipeline": pipeline, **row} for row in rows] for table, rows in tables.items()}
    verdict = _gate().judge(named, [pipeline], {})
    return sum(len(suites[table]) for table, rows in tables.items() if rows), verdict.failures.get(pipeline, ())
