"""What Spillway costs: word count with shedders at keep = 1 and metrics on against the plain query, and the exactly-once
sink against Spark's own, on the standalone cluster, alternating in one run.

    make bench NAME=overhead
    make bench NAME=overhead ARGS="--pairs 8 --skip-sink"
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import statistics
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from _common import REPO, alternate, exit_code, finish, paired_ratios, say, services, spread
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery
from spillway.act.launch.conf import SMALL_JVM
from spillway.inject.events import Pool
from spillway.model.topology import Application, Edge, Kind, Operator, Pipeline

from spark_jobs.operators.wordcount import count_words
from spark_jobs.runtime.metrics import Buffer, MetricsWriter, ProgressReader
from spark_jobs.runtime.operator import State, session_conf, sink_task
from spark_jobs.runtime.plan import Input, build, read_edge, to_records
from spark_jobs.runtime.progress import BatchContext, batch_rows
from spark_jobs.runtime.topics import MARKER_CONFIG, Topic, Topics
from spark_jobs.sinks import kafka as kafka_sink
from spark_jobs.sinks.kafka import KafkaSink

GOAL_THROUGHPUT, GOAL_SINK_CPU = 0.97, 1.3
SINK_SIZES = {5_000: 100_000, 50_000: 400_000, 250_000: 1_000_000}
"""Rows a batch → rows a run."""
WORDS_BATCH, WORDS_ROWS = 400_000, 1_600_000
"""A full batch takes about as long as the shipped pipeline's target of 4 s."""
PARTITIONS = 4


@dataclass(frozen=True, slots=True)
class Run:
    cpu_s: float
    wall_s: float
    rows: int
    batch_s: float
    """Median duration of a batch, the first one left out."""


class Cluster:
    """A Spark session with two executors of one slot, each on its own core, on the JVM settings that Spillway launches with,
    and a clock for the CPU of all of it."""

    def __init__(self, env: dict[str, str], folder: Path) -> None:
        os.environ.update({**env, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"})
        self.env, self.folder = env, folder
        jars = f"{env['SPILLWAY_JARS']}/*"
        builder = SparkSession.builder.master(env["SPILLWAY_SPARK_MASTER"]).appName("bench overhead")
        for key, value in {
            "spark.executor.cores": "1",
            "spark.cores.max": "2",
            "spark.executor.memory": "1g",
            "spark.driver.memory": "1g",
            "spark.driver.extraClassPath": jars,
            "spark.executor.extraClassPath": jars,
            "spark.driver.extraJavaOptions": SMALL_JVM,
            "spark.executor.extraJavaOptions": SMALL_JVM,
            "spark.executorEnv.PYTHONPATH": f"{REPO}:{REPO / 'plugins'}",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.locality.wait": "0s",
            **session_conf(State(checkpoint=0, buckets=8, max_rows=None), "file:"),
        }.items():
            builder = builder.config(key, value)
        self.spark = builder.getOrCreate()
        self.spark.sparkContext.setLogLevel("ERROR")
        self._app = self.spark.sparkContext.applicationId
        self._seen: dict[tuple[int, float], float] = {}

    def cpu_s(self) -> float:
        """CPU of this process, its JVM and all executors with their Python workers, also of those that have ended."""
        me = psutil.Process()
        roots = [me, *(p for p in psutil.process_iter(["cmdline"]) if self._app in (p.info["cmdline"] or []))]
        for root in roots:
            with contextlib.suppress(psutil.Error):
                for process in (root, *root.children(recursive=True)):
                    with contextlib.suppress(psutil.Error):
                        times = process.cpu_times()
                        self._seen[process.pid, process.create_time()] = times.user + times.system
        return sum(self._seen.values())

    def timed(self, start: Callable[[str], StreamingQuery], meanwhile: Callable[[StreamingQuery], None]) -> Run:
        """Runs one query over all there is, on a checkpoint of its own."""
        checkpoint = self.folder / uuid.uuid4().hex
        cpu, wall = self.cpu_s(), time.monotonic()
        query = start(f"file:{checkpoint}")
        meanwhile(query)
        query.awaitTermination()
        wall, cpu = time.monotonic() - wall, self.cpu_s() - cpu
        done = [p for p in query.recentProgress if p["numInputRows"]]
        shutil.rmtree(checkpoint, ignore_errors=True)
        batches = [p["batchDuration"] / 1000 for p in done[1:]] or [wall]
        return Run(cpu_s=cpu, wall_s=wall, rows=sum(p["numInputRows"] for p in done), batch_s=statistics.median(batches))


def fill(bootstrap: str, topic: str, rows: int, make: Callable[[int], bytes]) -> None:
    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 20, "compression.type": "lz4", "queue.buffering.max.messages": 500_000}
    )
    for first in range(0, rows, 10_000):
        messages = [{"key": b"%d" % n, "value": make(n)} for n in range(first, min(rows, first + 10_000))]
        while messages and producer.produce_batch(topic, messages) != len(messages):
            messages = [m for m in messages if m.pop("_error", None) is not None]
            producer.poll(0.05)
        producer.poll(0)
    producer.flush(60)


def word_pipeline(topic: str) -> Pipeline:
    schema = "text string not null"
    return Pipeline(
        name="overhead",
        operators=(
            Operator(
                name="count",
                function="spark_jobs.operators.wordcount:count_words",
                kind=Kind.AGGREGATE,
                schema=schema,
                output_mode="update",
            ),
        ),
        edges=(Edge(name=f"{topic}:count", topic=topic, producer=None, consumer="count", partitions=PARTITIONS),),
        applications=(Application(name="count", operators=("count",)),),
    )


def words(cluster: Cluster, pairs: int, topics: Topics) -> dict[str, Any]:
    """The shipped word count on its generator's sentences, both into the no-op sink: the difference is the shedder, the garbage
    check, the counts and the metrics."""
    bootstrap, topic = cluster.env["SPILLWAY_KAFKA"], "overhead.sentences"
    [sentences] = Pool("sentences", seed=1, size=100_000).take(0, 100_000, 0)
    say(f"writing {WORDS_ROWS:,} sentences")
    topics.ensure([Topic(name=topic, partitions=PARTITIONS)])
    fill(bootstrap, topic, WORDS_ROWS, lambda n: sentences[n % len(sentences)]["value"])
    pipeline = word_pipeline(topic)
    operator, edge = pipeline.operators[0], pipeline.edges[0]
    source = Input(bootstrap=bootstrap, max_rows=WORDS_BATCH)

    def write(frame: DataFrame, checkpoint: str) -> StreamingQuery:
        return (
            frame.writeStream.format("noop")
            .outputMode("update")
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )

    def plain(_: int) -> Run:
        def start(checkpoint: str) -> StreamingQuery:
            raw = read_edge(cluster.spark, edge, source)
            parsed = raw.select(F.from_json(F.col("value").cast("string"), "text string").alias("p")).select("p.text")
            return write(count_words(parsed), checkpoint)

        return cluster.timed(start, lambda _: None)

    def spillway(number: int) -> Run:
        buffer = Buffer(10_000)
        writer = MetricsWriter(buffer, "bench overhead", 1.0, lambda text: say(f"metrics: {text}"))
        stop = threading.Event()

        def poll(query: StreamingQuery) -> None:
            reader = ProgressReader(query)
            context = BatchContext(
                pipeline="overhead", application="count", operator="count", checkpoint=number + 10, generation=1,
                max_rows=WORDS_BATCH, edges=pipeline.edges, effective={},
            )  # fmt: skip
            last = False
            while not last:
                last = stop.wait(0.25)
                for progress in reader.new():
                    buffer.put(batch_rows(progress, context, buffer.dropped))

        def meanwhile(query: StreamingQuery) -> None:
            nonlocal thread
            thread = threading.Thread(target=poll, args=(query,))
            thread.start()
            writer.start()

        thread = threading.Thread()
        run = cluster.timed(lambda checkpoint: write(build(cluster.spark, pipeline, operator, source), checkpoint), meanwhile)
        stop.set()
        thread.join()
        writer.close()
        return run

    results = alternate({"plain": plain, "spillway": spillway}, rounds=pairs, warm_up=3)
    throughput = [r.rows / r.wall_s for r in results["spillway"]]
    baseline = [r.rows / r.wall_s for r in results["plain"]]
    return {
        "rows": results["plain"][0].rows,
        "pairs": pairs,
        "throughput_ratio": spread(paired_ratios(throughput, baseline)),
        "cpu_ratio": spread(paired_ratios([r.cpu_s for r in results["spillway"]], [r.cpu_s for r in results["plain"]])),
        "batch_ratio": spread(paired_ratios([r.batch_s for r in results["spillway"]], [r.batch_s for r in results["plain"]])),
        "plain_rows_per_s": spread(baseline, 0),
        "spillway_rows_per_s": spread(throughput, 0),
    }


def sinks(cluster: Cluster, pairs: int, topics: Topics) -> dict[str, Any]:
    """The same rows from Kafka to Kafka through Spark's own sink (at least once) and through Spillway's (exactly once)."""
    bootstrap, topic = cluster.env["SPILLWAY_KAFKA"], "overhead.events"
    total = max(SINK_SIZES.values())
    say(f"writing {total:,} events")
    topics.ensure([Topic(name=topic, partitions=PARTITIONS)])
    fill(
        bootstrap,
        topic,
        total,
        lambda n: b'{"id": %d, "zone": %d, "fare": %d.5, "note": "abcdefghijklmnopqrst"}' % (n, n % 265, n % 80),
    )
    edge = Edge(name="e", topic=topic, producer=None, consumer="op", partitions=PARTITIONS)
    found: dict[str, Any] = {}
    for size, rows in SINK_SIZES.items():

        def source(size: int = size) -> DataFrame:
            return read_edge(cluster.spark, edge, Input(bootstrap=bootstrap, max_rows=size)).select(
                "key", "value", F.col("partition").alias("_src")
            )

        def stop_at(query: StreamingQuery, limit: int = rows) -> None:
            """The topic holds the rows of the largest size; a smaller run ends after its own."""
            while query.isActive and sum(p["numInputRows"] for p in query.recentProgress) < limit:
                time.sleep(0.05)
            query.stop()

        def spark_sink(number: int, size: int = size) -> Run:
            out = f"overhead.spark.{size}.{number + 10}"
            topics.ensure([Topic(name=out, partitions=PARTITIONS)])

            def start(checkpoint: str) -> StreamingQuery:
                writer = source().select("key", "value").writeStream.format("kafka").option("topic", out)
                return (
                    writer.option("kafka.bootstrap.servers", bootstrap)
                    .option("checkpointLocation", checkpoint)
                    .trigger(processingTime="0 seconds")
                    .start()
                )

            return cluster.timed(start, stop_at)

        def exactly_once(number: int, size: int = size) -> Run:
            out = f"overhead.once.{size}.{number + 10}"
            marker = f"{out}.marker"
            topics.ensure(
                [Topic(name=out, partitions=PARTITIONS), Topic(name=marker, partitions=PARTITIONS, config=MARKER_CONFIG)]
            )
            sink = KafkaSink(bootstrap=bootstrap, writer_id=out, topics=(out,), marker_topics=(marker,), by_source=True)

            def start(checkpoint: str) -> StreamingQuery:
                records = to_records(source(), Operator(name="op", function="m:f"))
                written = records.mapInArrow(sink_task(kafka_sink.write_partition, sink), "rows bigint")
                counted = written.observe("__sink", F.sum("rows").alias("rows"))
                return (
                    counted.writeStream.format("noop")
                    .option("checkpointLocation", checkpoint)
                    .trigger(processingTime="0 seconds")
                    .start()
                )

            return cluster.timed(start, stop_at)

        results = alternate({"spark": spark_sink, "exactly_once": exactly_once}, rounds=pairs, warm_up=1)
        ours, theirs = results["exactly_once"], results["spark"]
        found[str(size)] = {
            "rows": rows,
            "cpu_ratio": spread(paired_ratios([r.cpu_s / r.rows for r in ours], [r.cpu_s / r.rows for r in theirs])),
            "wall_ratio": spread(paired_ratios([r.wall_s / r.rows for r in ours], [r.wall_s / r.rows for r in theirs])),
            "batch_ratio": spread(paired_ratios([r.batch_s for r in ours], [r.batch_s for r in theirs])),
        }
        say(f"{size:,} rows a batch: {found[str(size)]}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=6, help="pairs of runs that count (at least 6 for the word count)")
    parser.add_argument("--sink-pairs", type=int, default=6)
    parser.add_argument("--skip-words", action="store_true")
    parser.add_argument("--skip-sink", action="store_true")
    args = parser.parse_args()
    result: dict[str, Any] = {}
    with services("postgres", "kafka", "spark") as env, tempfile.TemporaryDirectory() as folder:
        cluster = Cluster(env, Path(folder))
        topics = Topics(env["SPILLWAY_KAFKA"])
        try:
            if not args.skip_words:
                result["word_count"] = words(cluster, args.pairs, topics)
            if not args.skip_sink:
                result["exactly_once"] = sinks(cluster, args.sink_pairs, topics)
        finally:
            cluster.spark.stop()
    goals = {}
    if "word_count" in result:
        goals["throughput_at_least_0.97"] = result["word_count"]["throughput_ratio"]["median"] >= GOAL_THROUGHPUT
    if "exactly_once" in result:
        goals["sink_cpu_at_most_1.3"] = {s: r["cpu_ratio"]["median"] <= GOAL_SINK_CPU for s, r in result["exactly_once"].items()}
    finish("overhead", {**result, "goals": goals})
    return exit_code(goals)


if __name__ == "__main__":
    sys.exit(main())
