"""What a stateless operator hands on beside its own columns."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

CARRIED = ("_src", "lineage")


def carry(df: DataFrame) -> list[Column]:
    """The columns of `df` that name a row's origin, as far as it has them.

    An operator that keeps them spares the transactional sink a shuffle, and lets every row be traced to its source event.
    """
    return [F.col(name) for name in CARRIED if name in df.columns]
