"""The smallest driver that keeps its part of the contract: heartbeat, stop as asked, give way to a newer generation. It also asks
for as many executors as Postgres says, to show that a launch leaves room for them; Spillway's own driver does not do that."""

from __future__ import annotations

import argparse
import os
import time

import psycopg2
from pyspark.sql import SparkSession

parser = argparse.ArgumentParser()
parser.add_argument("--pipeline")
parser.add_argument("--application")
parser.add_argument("--generation", type=int)
args = parser.parse_args()
who = (args.pipeline, args.application)
spark = SparkSession.builder.getOrCreate()
context = spark.sparkContext
assert context.getConf().get("spark.spillway.store")
spark._jvm.java.lang.Class.forName("org.apache.spark.sql.kafka010.KafkaSourceProvider")
conn = psycopg2.connect(os.environ["SPILLWAY_DSN_JOB"])
conn.autocommit = True
asked = 1
with conn.cursor() as cursor:
    while True:
        cursor.execute(
            "select desired, generation, version, executors from spillway.application where pipeline = %s and application = %s",
            who,
        )
        desired, generation, version, executors = cursor.fetchone() or ("stopped", args.generation, 0, asked)
        over = "stopped" if desired == "stopped" else "fenced" if generation != args.generation else None
        cursor.execute(
            "insert into spillway.heartbeat (pipeline, application, generation, holder, state, pid, host, spark_app, version)"
            " values (%s, %s, %s, %s, %s, %s, %s, %s, %s) on conflict (pipeline, application, generation)"
            " do update set state = excluded.state, at = now()",
            (*who, args.generation, str(os.getpid()), over or "running", os.getppid(), "here", context.applicationId, version),
        )
        if over:
            break
        if executors != asked:
            context._jsc.sc().requestTotalExecutors(
                executors, 0, spark._jvm.PythonUtils.toScalaMap(spark._jvm.java.util.HashMap())
            )
            asked = executors
        if os.getppid() == 1:  # its JVM is gone
            break
        time.sleep(0.5)
spark.stop()
