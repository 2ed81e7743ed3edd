"""Ad analytics: views per campaign in windows of ten seconds.

The Yahoo streaming benchmark (Chintapalli et al., 2016), which "Flink-ER" (Li et al., 2020, section 4.2, figure 10) runs:
parse → filter views → join with campaigns → windowed count. The campaigns come from a seeded table instead of Redis.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from spillway.model.campaigns import campaign_of_ad

from spark_jobs.operators.carry import carry


def views(df: DataFrame) -> DataFrame:
    """The views among the ad events, projected to what is counted; `event_time` arrives in milliseconds."""
    return df.where("event_type = 'view'").select(*carry(df), "ad_id", F.timestamp_millis("event_time").alias("event_time"))


def join_campaigns(df: DataFrame, seed: int = 1, campaigns: int = 100, ads_per_campaign: int = 10) -> DataFrame:
    """The campaign of each view; views of unknown ads are dropped, as in the benchmark."""
    table = sorted(campaign_of_ad(seed, campaigns, ads_per_campaign).items())
    known = df.sparkSession.createDataFrame(table, "ad_id string, campaign_id string")
    return df.join(F.broadcast(known), "ad_id").select(*carry(df), "campaign_id", "ad_id", "event_time")


def count_views(df: DataFrame, window: str = "10 seconds", late: str = "10 seconds") -> DataFrame:
    """Views per campaign and window of event time; what comes more than `late` behind the newest event is not counted."""
    windowed = df.withWatermark("event_time", late).groupBy("campaign_id", F.window("event_time", window).alias("w"))
    return windowed.agg(F.count(F.lit(1)).alias("views")).select(
        "campaign_id", F.col("w.start").alias("window_start"), F.col("w.end").alias("window_end"), "views"
    )
