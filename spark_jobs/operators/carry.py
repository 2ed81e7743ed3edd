"""What a stateless operator hands on beside its own columns."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

CARRIED = ("_src", "lineage", "_weight")


def carry(df: DataFrame) -> list[Column]:
    """The columns of `df` that say where a row comes from and what it stands for, as far as it has them.

    An operator that keeps them spares the transactional sink a shuffle, lets every row be traced to its source event, and hands
    its weight to operators below that ask for weights.
    """
    return [F.col(name) for name in CARRIED if name in df.columns]
