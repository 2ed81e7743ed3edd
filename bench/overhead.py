"""What Spillway costs: word count with shedders at keep = 1 and metrics on against the plain query, and the exactly-once
sink against Spark's own, on the standalone cluster, alternating in one run.

    make bench NAME=overhead
    make bench NAME=overhead ARGS="--skip-sink --itself"
    make bench NAME=overhead ARGS="--skip-words --sizes 5000 --daemon pyspark.daemon"   # without ADR 29
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
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from _common import REPO, alternate, exit_code, finish, paired_ratios, say, services, spread
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery
from spillway.act.launch.conf import EXECUTOR_JVM, PYTHON_DAEMON, QUICK_JVM
from spillway.inject.events import Pool
from spillway.model.topology import Application, Edge, Kind, Operator, Pipeline

from spark_jobs.operators.wordcount import count_words
from spark_jobs.runtime.metrics import Buffer, MetricsWriter, ProgressReader
from spark_jobs.runtime.plan import Input, build, read_edge, to_records
from spark_jobs.runtime.progress import BatchContext, batch_rows
from spark_jobs.runtime.session import session_conf
from spark_jobs.runtime.topics import MARKER_CONFIG, Topic, Topics
from spark_jobs.runtime.writing import sink_task
from spark_jobs.sinks import kafka as kafka_sink
from spark_jobs.sinks.kafka import KafkaSink

GOAL_THROUGHPUT, GOAL_SINK_CPU = 0.97, 1.3
SINK_SIZES = {5_000: 200_000, 50_000: 500_000, 250_000: 1_250_000}
"""Rows a batch → rows a run."""
WARM_UP = {5_000: 3}
"""Rounds that do not count: as many batches as compilers need. One where batches are large."""
STARTING = 0.2
"""What this share of its batches costs at first is left out: a driver starts its writers once, and runs for days."""
WORDS_BATCH, BLOCK, BASES = 500_000, 6, ("plain", "same_reader")
"""A full batch takes about two seconds; pairs between two new beginnings; what Spillway is compared with."""
PARTITIONS = 4
DRIVER, BROKER = "org.apache.spark.deploy.SparkSubmit", "kafka.Kafka"
"""Main classes."""
PRODUCER = {"linger.ms": 20, "compression.type": "lz4", "queue.buffering.max.messages": 500_000}


@dataclass(frozen=True, slots=True)
class Run:
    cpu_s: float
    wall_s: float
    rows: int
    batch_s: float
    """Median duration of a batch, the first one left out."""
    broker_s: float = 0.0
    """CPU of Kafka meanwhile."""
    roles: dict[str, float] = field(default_factory=dict)
    """`cpu_s` by whose it is."""
    phases: dict[str, int] = field(default_factory=dict)
    """Milliseconds of a single batch, by phase."""


def with_argument(processes: Iterable[psutil.Process], argument: str) -> list[psutil.Process]:
    found = []
    for process in processes:
        with contextlib.suppress(psutil.Error):
            found += [process] if argument in process.cmdline() else []
    return found


def used_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


class Cluster:
    """A Spark session with two executors of one slot, each on its own core, on the JVM settings that Spillway launches with on a
    cluster of machines, and a clock for the CPU of all of it."""

    def __init__(self, env: dict[str, str], folder: Path, executor_jvm: str, daemon: str = PYTHON_DAEMON) -> None:
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
            "spark.driver.extraJavaOptions": QUICK_JVM,
            "spark.executor.extraJavaOptions": executor_jvm,
            "spark.executorEnv.PYTHONPATH": f"{REPO}:{REPO / 'plugins'}",
            "spark.python.daemon.module": daemon,
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.locality.wait": "0s",
            **session_conf(8, "file:"),
        }.items():
            builder = builder.config(key, value)
        self.spark = builder.getOrCreate()
        self.spark.sparkContext.setLogLevel("ERROR")
        self._app = self.spark.sparkContext.applicationId
        self._seen: dict[tuple[str, int, float], float] = {}

    def cpu_s(self) -> float:
        """CPU of this process, its JVM and all executors with their Python workers, also of those that have ended."""
        return sum(self.roles_s().values())

    def roles_s(self) -> dict[str, float]:
        own = psutil.Process()
        found = [("driver", p) for p in (own, *with_argument(own.children(), DRIVER))]
        for executor in with_argument(psutil.process_iter(), self._app):
            with contextlib.suppress(psutil.Error):
                found += [("executors", executor), *(("workers", p) for p in executor.children(recursive=True))]
        for role, process in found:
            with contextlib.suppress(psutil.Error):
                self._seen[role, process.pid, process.create_time()] = used_s(process)
        total = dict.fromkeys(("driver", "executors", "workers"), 0.0)
        for (role, *_), used in self._seen.items():
            total[role] += used
        return total

    def broker_s(self) -> float:
        [broker] = with_argument(psutil.Process().children(recursive=True), BROKER)
        return used_s(broker)

    def timed(self, start: Callable[[str], StreamingQuery], size: int, batches: int) -> Run:
        """Runs one query over so many batches of that size, on a checkpoint of its own; those of its start do not count."""
        checkpoint = self.folder / uuid.uuid4().hex
        query = start(f"file:{checkpoint}")
        first = self._after(query, round(STARTING * batches))
        before, broker, wall = self.roles_s(), self.broker_s(), time.monotonic()
        last = self._after(query, batches)
        wall, broker = time.monotonic() - wall, self.broker_s() - broker
        roles = {role: used - before[role] for role, used in self.roles_s().items()}
        query.stop()
        done = [p for p in query.recentProgress if p["numInputRows"] and p["batchId"] < last]
        # Spark shares a limit out among partitions by what is in them, and rounds down.
        if any(not size - PARTITIONS <= p["numInputRows"] <= size for p in done):
            raise RuntimeError(f"not the batches that were to be measured: {[p['numInputRows'] for p in done]} rows")
        shutil.rmtree(checkpoint, ignore_errors=True)
        batch_s = statistics.median(p["batchDuration"] / 1000 for p in done[first:])
        rows = sum(p["numInputRows"] for p in done[first:])
        return Run(cpu_s=sum(roles.values()), wall_s=wall, rows=rows, batch_s=batch_s, broker_s=broker, roles=roles)

    @staticmethod
    def _after(query: StreamingQuery, batches: int) -> int:
        """Waits until so many are done, by a look that costs nearly nothing: it is part of what is measured. Returns how many."""
        java: Any = query
        while True:
            last = java._jsq.lastProgress()
            if last is not None and (done := last.batchId() + 1) >= batches:
                return int(done)
            if not query.isActive:
                raise RuntimeError(f"the query ended: {query.exception()}")
            time.sleep(0.1)


def write(producer: Producer, topic: str, rows: int, make: Callable[[int], bytes]) -> None:
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


class Steady:
    """A running word count, given one batch at a time: a batch begins when all its rows are there, and only one query works."""

    def __init__(self, cluster: Cluster, topics: Topics, name: str, make: Callable[[Pipeline, Input], DataFrame]) -> None:
        self._cluster, self._topics, self._name, self._make = cluster, topics, name, make
        self._producer = Producer({**PRODUCER, "bootstrap.servers": cluster.env["SPILLWAY_KAFKA"]})
        [events] = Pool("sentences", seed=1, size=100_000).take(0, 100_000, 0)
        self._sentences = [event["value"] for event in events]
        self.query: StreamingQuery | None = None

    def start(self, block: int) -> None:
        """Begins anew with a topic and a checkpoint of its own, so that no placement of state stays for the whole bench."""
        self.stop()
        self._topic = f"overhead.{self._name}.{block}"
        self._topics.ensure([Topic(name=self._topic, partitions=PARTITIONS)])
        self.pipeline = word_pipeline(self._topic)
        whole = (("minOffsetsPerTrigger", str(WORDS_BATCH)), ("maxTriggerDelay", "1h"))
        source = Input(bootstrap=self._cluster.env["SPILLWAY_KAFKA"], max_rows=2 * WORDS_BATCH, options=whole)
        self.query = (
            self._make(self.pipeline, source)
            .writeStream.format("noop")
            .outputMode("update")
            .option("checkpointLocation", f"file:{self._cluster.folder / self._topic}")
            .trigger(processingTime="500 milliseconds")
            .start()
        )
        # Its first look waits for no number of rows: it has to find none.
        while "Waiting" not in self.query.status["message"]:
            if not self.query.isActive:
                raise RuntimeError(f"the query on {self._topic} ended: {self.query.exception()}")
            time.sleep(0.1)

    def stop(self) -> None:
        if self.query is not None:
            self.query.stop()

    def batch(self, _: int) -> Run:
        assert self.query is not None
        before = self.query.lastProgress
        write(self._producer, self._topic, WORDS_BATCH - 1, lambda n: self._sentences[n % len(self._sentences)])
        cpu = self._cluster.cpu_s()
        write(self._producer, self._topic, 1, lambda _: self._sentences[-1])
        last = before
        while last is None or not last["numInputRows"] or (before and last["timestamp"] == before["timestamp"]):
            if not self.query.isActive:
                raise RuntimeError(f"the query on {self._topic} ended: {self.query.exception()}")
            time.sleep(0.1)
            last = self.query.lastProgress
        time.sleep(0.7)  # the metrics of the batch are written, and no process is in the middle of something
        wall = last["batchDuration"] / 1000
        cpu_s = self._cluster.cpu_s() - cpu
        return Run(cpu_s=cpu_s, wall_s=wall, rows=last["numInputRows"], batch_s=wall, phases=dict(last["durationMs"]))


class Metrics:
    """The metrics of a query on their way to Postgres, as in a driver."""

    def __init__(self, steady: Steady, block: int) -> None:
        assert steady.query is not None
        self._reader, self._stop, self.reported = ProgressReader(steady.query), threading.Event(), 0
        self.buffer = Buffer(10_000)
        self._writer = MetricsWriter(self.buffer, "bench overhead", 1.0, lambda text: say(f"metrics: {text}"))
        self._context = BatchContext(
            pipeline="overhead", application="count", operator="count", checkpoint=block, generation=1,
            max_rows=WORDS_BATCH, edges=steady.pipeline.edges, effective={},
        )  # fmt: skip
        self._thread = threading.Thread(target=self._poll)
        self._thread.start()
        self._writer.start()

    def _poll(self) -> None:
        last = False
        while not last:
            last = self._stop.wait(0.25)
            for progress in self._reader.new():
                self.buffer.put(batch_rows(progress, self._context, self.buffer.dropped))
                self.reported += 1

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        self._writer.close()


def words(cluster: Cluster, pairs: int, topics: Topics, *, itself: bool) -> dict[str, Any]:
    """The shipped word count on its generator's sentences into the no-op sink: running queries, full batches in turn, all begun
    anew every few rounds.

    `plain` is the query without Spillway; `same_reader` is the plain query with the settings Spillway gives to Kafka's consumer:
    against that one, the difference is the shedder, the garbage check, the counts and the metrics alone.

    Not in it: the control thread, the reader of executors and the sweeper of a driver. The threads for the metrics run all the
    time, so that what they cost between two batches is charged to all; and full batches hide what planning costs small ones.
    """

    def counted(raw: DataFrame) -> DataFrame:
        return count_words(raw.select(F.from_json(F.col("value").cast("string"), "text string").alias("p")).select("p.text"))

    def plain(pipeline: Pipeline, source: Input) -> DataFrame:
        reader = cluster.spark.readStream.format("kafka").options(**dict(source.options))
        reader = reader.option("subscribe", pipeline.edges[0].topic).option("maxOffsetsPerTrigger", source.max_rows)
        return counted(reader.option("startingOffsets", "earliest").option("kafka.bootstrap.servers", source.bootstrap).load())

    def same_reader(pipeline: Pipeline, source: Input) -> DataFrame:
        return counted(read_edge(cluster.spark, pipeline.edges[0], source))

    def built(pipeline: Pipeline, source: Input) -> DataFrame:
        return build(cluster.spark, pipeline, pipeline.operators[0], source)

    made = {"plain": plain, "again": plain} if itself else {"plain": plain, "same_reader": same_reader, "spillway": built}
    running = {name: Steady(cluster, topics, name, make) for name, make in made.items()}
    results: dict[str, list[Run]] = {name: [] for name in running}
    for block in range(-(-pairs // BLOCK)):
        for steady in list(running.values())[:: 1 if block % 2 == 0 else -1]:
            steady.start(block)
        metrics = None if itself else Metrics(running["spillway"], block + 1)
        try:
            found = alternate(
                {name: steady.batch for name, steady in running.items()},
                rounds=min(BLOCK, pairs - block * BLOCK),
                warm_up=4 if block == 0 else 1,
            )
        finally:
            if metrics is not None:
                metrics.close()
            for steady in running.values():
                steady.stop()
        if metrics is not None and (metrics.reported < len(found["plain"]) or metrics.buffer.dropped):
            raise RuntimeError(f"{metrics.reported} batches reported, {metrics.buffer.dropped} rows dropped")
        for name, runs in found.items():
            if any(run.rows != WORDS_BATCH for run in runs):
                raise RuntimeError(f"not the batches that were to be measured: {[run.rows for run in runs]} rows")
            results[name] += runs
    against = {base: compared(results["again" if itself else "spillway"], results[base]) for base in made if base in BASES}
    speeds = {f"{name}_rows_per_s": spread([r.rows / r.wall_s for r in runs], 0) for name, runs in results.items()}
    return {"rows_a_batch": WORDS_BATCH, "pairs": pairs, "against": against, **speeds, "phases_ms": phases(results)}


def phases(results: dict[str, list[Run]]) -> dict[str, dict[str, float]]:
    """Where the time of a batch goes: the median of every phase."""
    return {
        name: {phase: statistics.median(run.phases.get(phase, 0) for run in runs) for phase in runs[0].phases}
        for name, runs in results.items()
    }


def compared(ours: list[Run], base: list[Run]) -> dict[str, Any]:
    def total(runs: list[Run], what: str) -> float:
        return sum(getattr(run, what) for run in runs)

    return {
        "throughput_ratio": spread(paired_ratios([r.rows / r.wall_s for r in ours], [r.rows / r.wall_s for r in base])),
        "throughput_ratio_of_totals": round(total(base, "wall_s") / total(ours, "wall_s"), 3),
        "cpu_ratio": spread(paired_ratios([r.cpu_s for r in ours], [r.cpu_s for r in base])),
        "cpu_ratio_of_totals": round(total(ours, "cpu_s") / total(base, "cpu_s"), 3),
    }


def sinks(cluster: Cluster, pairs: int, topics: Topics, sizes: Sequence[int]) -> dict[str, Any]:
    """The same rows from Kafka to Kafka through Spark's own sink (at least once) and through Spillway's (exactly once)."""
    bootstrap, topic = cluster.env["SPILLWAY_KAFKA"], "overhead.events"
    total = max(SINK_SIZES[size] for size in sizes) * 11 // 10
    say(f"writing {total:,} events")
    topics.ensure([Topic(name=topic, partitions=PARTITIONS)])
    write(
        Producer({**PRODUCER, "bootstrap.servers": bootstrap}),
        topic,
        total,
        lambda n: b'{"id": %d, "zone": %d, "fare": %d.5, "note": "abcdefghijklmnopqrst"}' % (n, n % 265, n % 80),
    )
    edge = Edge(name="e", topic=topic, producer=None, consumer="op", partitions=PARTITIONS)
    found: dict[str, Any] = {}
    for size, rows in ((size, SINK_SIZES[size]) for size in sizes):

        def source(size: int = size) -> DataFrame:
            return read_edge(cluster.spark, edge, Input(bootstrap=bootstrap, max_rows=size)).select(
                "key", "value", F.col("partition").alias("_src")
            )

        def spark_sink(number: int, size: int = size, rows: int = rows) -> Run:
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

            return cluster.timed(start, size, rows // size)

        def exactly_once(number: int, size: int = size, rows: int = rows) -> Run:
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

            return cluster.timed(start, size, rows // size)

        results = alternate({"spark": spark_sink, "exactly_once": exactly_once}, rounds=pairs, warm_up=WARM_UP.get(size, 1))
        ours, theirs = results["exactly_once"], results["spark"]
        found[str(size)] = {
            "rows": rows,
            "cpu_ratio": spread(paired_ratios([r.cpu_s / r.rows for r in ours], [r.cpu_s / r.rows for r in theirs])),
            "wall_ratio": spread(paired_ratios([r.wall_s / r.rows for r in ours], [r.wall_s / r.rows for r in theirs])),
            "batch_ratio": spread(paired_ratios([r.batch_s for r in ours], [r.batch_s for r in theirs])),
            "broker_cpu_ratio": spread(paired_ratios([r.broker_s / r.rows for r in ours], [r.broker_s / r.rows for r in theirs])),
            "cpu_ms_a_batch": {name: spread([1000 * size * r.cpu_s / r.rows for r in runs], 1) for name, runs in results.items()},
            "of_it": {
                name: {
                    role: round(statistics.median(1000 * size * r.roles[role] / r.rows for r in runs), 1)
                    for role in runs[0].roles
                }
                for name, runs in results.items()
            },
        }
        say(f"{size:,} rows a batch: {found[str(size)]}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=24, help="pairs of batches of the word count that count (at least 6)")
    parser.add_argument("--sink-pairs", type=int, default=6, help="pairs of runs of the sinks")
    parser.add_argument("--skip-words", action="store_true")
    parser.add_argument("--sizes", type=int, nargs="*", default=list(SINK_SIZES), choices=list(SINK_SIZES), help="rows a batch")
    parser.add_argument("--itself", action="store_true", help="the plain word count against itself: how far chance alone goes")
    parser.add_argument("--skip-sink", action="store_true")
    parser.add_argument("--daemon", default=PYTHON_DAEMON, help="who makes Python workers; Spark's own is pyspark.daemon")
    parser.add_argument("--quick", action="store_true", help="executors with the quick compiler, as the embedded services have")
    args = parser.parse_args()
    result: dict[str, Any] = {}
    with services("postgres", "kafka", "spark") as env, tempfile.TemporaryDirectory() as folder:
        cluster = Cluster(env, Path(folder), QUICK_JVM if args.quick else EXECUTOR_JVM, args.daemon)
        topics = Topics(env["SPILLWAY_KAFKA"])
        try:
            if not args.skip_words:
                result["word_count"] = words(cluster, args.pairs, topics, itself=args.itself)
                say(f"word count: {result['word_count']['against']}")
            if not args.skip_sink:
                result["exactly_once"] = sinks(cluster, args.sink_pairs, topics, args.sizes)
        finally:
            cluster.spark.stop()
    goals = {}
    if "word_count" in result and not args.itself:
        goals["throughput_at_least_0.97"] = {
            base: found["throughput_ratio"]["median"] >= GOAL_THROUGHPUT
            for base, found in result["word_count"]["against"].items()
        }
    if "exactly_once" in result:
        goals["sink_cpu_at_most_1.3"] = {s: r["cpu_ratio"]["median"] <= GOAL_SINK_CPU for s, r in result["exactly_once"].items()}
    finish("overhead", {**result, "goals": goals})
    return exit_code(goals)


if __name__ == "__main__":
    sys.exit(main())
