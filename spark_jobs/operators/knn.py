"""k-nearest neighbours: classifies 3-D points against a known set.

Paper: Alves, "Stream Economics" (2018), section 5.4.2, figure 5.1 (2): one task, a topic of two partitions, incoming events are
random three-dimensional tuples. The data set of the thesis is not public; a seeded one stands in for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_jobs.operators.carry import carry

BLOCK = 512
"""Points compared at a time: bounds the distance matrix of one task."""


def classify(df: DataFrame, k: int = 5, points: int = 1000, classes: int = 4, seed: int = 7) -> DataFrame:
    """The majority class of the `k` nearest of `points` known points (the smaller class on a tie), and their mean distance."""
    if not 1 <= k <= points:
        raise ValueError(f"classify: k is {k}, it must be between 1 and the number of known points ({points})")

    @F.pandas_udf("struct<class: int, votes: int, distance: double>")  # type: ignore[call-overload]
    def nearest(parts: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for part in parts:
            label, votes, distance = vote(part[["x", "y", "z"]].to_numpy("float64"), k, points, classes, seed)
            yield pd.DataFrame({"class": label, "votes": votes, "distance": distance})

    found = df.withColumn("_nearest", nearest(F.struct("x", "y", "z")))
    return found.select(
        *carry(df),
        "x",
        "y",
        "z",
        F.col("_nearest.class").alias("class"),
        F.col("_nearest.votes").alias("votes"),
        F.col("_nearest.distance").alias("distance"),
    )


@lru_cache(maxsize=4)
def known_points(points: int, classes: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Coordinates in [0, 1)³ and class of the known set: Gaussian clusters, one per class."""
    rng = np.random.default_rng(seed)
    centres = rng.uniform(0.2, 0.8, (classes, 3))
    label = rng.integers(0, classes, points)
    return np.clip(centres[label] + rng.normal(0.0, 0.15, (points, 3)), 0.0, 1.0), label


def vote(at: np.ndarray, k: int, points: int, classes: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Class, votes for it, and mean distance of the `k` nearest known points, per row of `at`."""
    known, label = known_points(points, classes, seed)
    winner = np.empty(len(at), "int32")
    votes = np.empty(len(at), "int32")
    distance = np.empty(len(at), "float64")
    for lo in range(0, len(at), BLOCK):
        block = at[lo : lo + BLOCK]
        squared = sum((block[:, axis, None] - known[None, :, axis]) ** 2 for axis in range(3))
        near = np.argpartition(squared, k - 1, axis=1)[:, :k]
        ballots = (label[near][:, :, None] == np.arange(classes)).sum(axis=1)
        hi = lo + len(block)
        winner[lo:hi] = ballots.argmax(axis=1)
        votes[lo:hi] = ballots.max(axis=1)
        distance[lo:hi] = np.sqrt(np.take_along_axis(squared, near, axis=1)).mean(axis=1)
    return winner, votes, distance
