"""Word count: how often each word was seen.

Paper: Li et al., "Flink-ER" (2020), section 4.2, figure 7, and listing 4.1 of Alves, "Stream Economics" (2018).
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def count_words(df: DataFrame) -> DataFrame:
    """Running count per word; words are runs of letters, digits and apostrophes, in lower case."""
    words = df.select(F.explode(F.split(F.lower("text"), r"[^\p{L}\p{N}']+")).alias("word"))
    return words.where("word <> ''").groupBy("word").count().select("word", "count")
