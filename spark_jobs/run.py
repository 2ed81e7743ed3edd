"""The driver program of one application: `run.py --pipeline P --application A --generation G [--successor PLAN]`.

Everything else it needs is in Postgres (the topology, the checkpoint of each operator) and in the environment:
SPILLWAY_DSN_JOB, SPILLWAY_KAFKA, SPILLWAY_CHECKPOINTS.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

for folder in (Path(__file__).resolve().parents[1], Path(__file__).resolve().parents[1] / "plugins"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

from pyspark.sql import SparkSession  # noqa: E402
from spillway.policy import Policy  # noqa: E402

from spark_jobs.runtime.control import Fenced, acquire  # noqa: E402
from spark_jobs.runtime.driver import FAILED, REFUSED, STOPPED, Driver, assignment, connect_patiently  # noqa: E402
from spark_jobs.runtime.successor import Successor  # noqa: E402

log = logging.getLogger("spillway.driver")


def end_with_parent(every_s: float = 0.5) -> None:
    """The JVM that started this process owns the query; a Python process that outlives it must not go on renewing the lease."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(every_s)
        os._exit(FAILED)

    threading.Thread(target=watch, name="parent", daemon=True).start()


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Run one Spillway application.")
    parser.add_argument("--pipeline", required=True)
    parser.add_argument("--application", required=True)
    parser.add_argument("--generation", required=True, type=int)
    parser.add_argument("--successor", type=int, metavar="PLAN", help="rehearse for this plan first, and take over when told")
    args = parser.parse_args(argv)
    logging.basicConfig(level=os.environ.get("SPILLWAY_LOG", "INFO"), format="%(asctime)s %(name)s %(levelname)s %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    end_with_parent()
    policy = Policy.load()
    try:
        connection = connect_patiently(f"spillway {args.pipeline}/{args.application}", patience_s=60.0)
        work = assignment(connection, args.pipeline, args.application, args.generation)
        spark = SparkSession.builder.appName(f"spillway:{args.pipeline}:{args.application}:{args.generation}").getOrCreate()
        spark.sparkContext.setLogLevel(os.environ.get("SPILLWAY_SPARK_LOG", "WARN"))
        if args.successor is None:
            acquire(connection, work.identity, policy)
            # The predecessor may have gone on until now: only its last report says what it left unreported.
            work = replace(work, states=assignment(connection, args.pipeline, args.application, args.generation).states)
            driver: Driver | Successor = Driver(spark, work, policy)
        else:
            driver = Successor(spark, work, policy, args.successor)
        connection.close()
    except Fenced as reason:
        log.warning("%s; nothing to do", reason)
        return STOPPED
    except LookupError as error:
        log.error("%s", error.args[0])
        return REFUSED
    except RuntimeError as error:
        log.error("%s", error)
        return FAILED
    code = driver.run()
    spark.stop()
    return code


if __name__ == "__main__":
    exit_code = main()
    logging.shutdown()
    # A helper thread may still wait on a socket; the queries have ended and the lease is released.
    os._exit(exit_code)
