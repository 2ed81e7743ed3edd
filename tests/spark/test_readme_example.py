"""The README's example is run as it stands there: its YAML is checked, its function runs in a stream behind a shedder."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from spillway.model.settings import Effective
from spillway.model.topology import Pipeline
from spillway.topology import check_files

from spark_jobs.runtime import plan
from spark_jobs.runtime.shed import encode, property_name
from spark_jobs.runtime.writers import WrittenBy, written_by

pytestmark = pytest.mark.spark
README = Path(__file__).resolve().parents[2] / "README.md"
ROWS, GARBAGE = 2000, 20


def examples() -> dict[str, str]:
    """File name → text of each code block that the README marks as an example."""
    return dict(re.findall(r"<!-- example: (\S+) -->\n```\w+\n(.*?)```", README.read_text(encoding="utf-8"), re.S))


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    """The YAML checked with its function, which lies where the README says."""
    texts = examples()
    (tmp_path / "tips.py").write_text(texts["spark_jobs/operators/tips.py"])
    (tmp_path / "tips.yaml").write_text(texts["pipelines/tips.yaml"])
    name = "spark_jobs.operators.tips"
    spec = importlib.util.spec_from_file_location(name, tmp_path / "tips.py")
    assert spec is not None and spec.loader is not None
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    checked = check_files([tmp_path / "tips.yaml"], import_functions=True)
    assert checked.problems == ()
    yield checked.pipelines[0]
    del sys.modules[name]


def events(spark: SparkSession) -> DataFrame:
    """Kafka's columns: trips in five zones, and some garbage."""
    good = F.to_json(F.struct((F.col("id") % 5).cast("int").alias("zone"), (F.col("id") % 5 + 1).cast("double").alias("tip")))
    return spark.range(ROWS + GARBAGE).select(
        F.lit(None).cast("binary").alias("key"),
        F.when(F.col("id") < ROWS, good).otherwise("not a trip").cast("binary").alias("value"),
        F.lit("trips").alias("topic"),
        (F.col("id") % 4).cast("int").alias("partition"),
        F.col("id").alias("offset"),
        F.current_timestamp().alias("timestamp"),
        F.lit(0).alias("timestampType"),
    )


def run(spark: SparkSession, pipeline: Pipeline, folder: Path, keep: float, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Trips per zone that come out when the events arrive as a stream; only Kafka itself is left out."""
    operator, (edge,) = pipeline.operators[0], pipeline.edges
    source = str(folder / "events")
    events(spark).write.parquet(source)
    monkeypatch.setattr(plan, "read_edge", lambda *_: spark.readStream.schema(events(spark).schema).parquet(source))
    system = spark._jvm.java.lang.System  # type: ignore[union-attr]
    system.setProperty(property_name(pipeline.name, edge.name), encode(Effective(keep=keep, decision_id=1, source="setting")))
    try:
        frame = plan.build(spark, pipeline, operator, plan.Input(bootstrap="unused", max_rows=1))
        assert written_by(frame) is WrittenBy.STATE
        records = plan.to_records(frame, operator)
        query = (
            records.writeStream.format("memory")
            .queryName("tips")
            .outputMode(operator.output_mode)
            .option("checkpointLocation", str(folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(120)
        assert query.exception() is None
    finally:
        system.clearProperty(property_name(pipeline.name, edge.name))
    found = {}
    for key, value in spark.table("tips").select("key", "value").collect():
        row = json.loads(bytes(value))
        assert bytes(key).decode() == str(row["zone"])
        assert row["tip"] == row["zone"] + 1
        found[bytes(key).decode()] = row["trips"]
    return found


def test_wrapping_a_query_takes_at_most_ten_lines() -> None:
    assert len(examples()["pipelines/tips.yaml"].splitlines()) <= 10


def test_it_runs(spark: SparkSession, pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(spark, pipeline, tmp_path, 1.0, monkeypatch) == {str(zone): ROWS // 5 for zone in range(5)}


def test_half_of_the_events(spark: SparkSession, pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = sum(run(spark, pipeline, tmp_path, 0.5, monkeypatch).values())
    assert kept / ROWS == pytest.approx(0.5, abs=0.05)
