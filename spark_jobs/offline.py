"""Jobs on the state of an operator beside its driver, one per submission:

    offline.py digest      --pipeline P --operator O --plan ID --checkpoint C [--checkpoint-to D] [--batch N] [--buckets K]
    offline.py repair      --pipeline P --operator O --checkpoint C
    offline.py repartition --pipeline P --operator O --checkpoint C --to LOCATION --buckets K

`digest` counts and sums up the state before a change and after it, and writes a row per bucket to `bucket_handle`. `repair`
finishes a repartition that was left half-done; the operator must be stopped. `repartition` copies the checkpoint to LOCATION,
where nothing may be yet, and gives the copy K buckets; the operator may run. All of them read SPILLWAY_CHECKPOINTS, `digest`
also SPILLWAY_DSN_JOB or SPILLWAY_DSN_CONTROL. The last line they print is JSON.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

for folder in (Path(__file__).resolve().parents[1], Path(__file__).resolve().parents[1] / "plugins"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

from py4j.protocol import Py4JJavaError  # noqa: E402
from pyspark.errors import PySparkException  # noqa: E402
from pyspark.sql import SparkSession  # noqa: E402

from spark_jobs.runtime.checkpoint import Checkpoint, location  # noqa: E402
from spark_jobs.runtime.clone import clone  # noqa: E402
from spark_jobs.runtime.database import ROLES, connect, run  # noqa: E402
from spark_jobs.runtime.digest import Handle, digested  # noqa: E402
from spark_jobs.runtime.muting import muted_until  # noqa: E402
from spark_jobs.runtime.repartition import repartition, unfinished  # noqa: E402
from spark_jobs.runtime.session import session_conf  # noqa: E402

log = logging.getLogger("spillway.offline")


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Count, mend or copy the state of an operator.")
    jobs = parser.add_subparsers(dest="job", required=True)
    for name in ("digest", "repair", "repartition"):
        job = jobs.add_parser(name)
        job.add_argument("--pipeline", required=True)
        job.add_argument("--operator", required=True)
        job.add_argument("--checkpoint", required=True, type=int)
        if name == "digest":
            job.add_argument("--plan", required=True, type=int)
            job.add_argument("--checkpoint-to", type=int, help="the checkpoint after the change, where it is another one")
            job.add_argument("--batch", type=int, help="the last batch before the change; the newest committed one by default")
            job.add_argument("--buckets", type=int, help="to how many the state was repartitioned in place, if it was")
        if name == "repartition":
            job.add_argument("--to", required=True, help="where the copy goes")
            job.add_argument("--buckets", required=True, type=int)
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    args = arguments(argv)
    logging.basicConfig(level=os.environ.get("SPILLWAY_LOG", "INFO"), format="%(asctime)s %(name)s %(levelname)s %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    checkpoints = os.environ.get("SPILLWAY_CHECKPOINTS")
    if not checkpoints:
        log.error("SPILLWAY_CHECKPOINTS must be set: where checkpoints lie")
        return 1
    spark = SparkSession.builder.appName(f"spillway-{args.job}:{args.pipeline}:{args.operator}").getOrCreate()
    spark.sparkContext.setLogLevel(os.environ.get("SPILLWAY_SPARK_LOG", "WARN"))
    for key, value in session_conf(1, checkpoints).items():
        spark.conf.set(key, value)
    jobs: dict[str, Callable[[SparkSession, str, argparse.Namespace], dict[str, Any]]] = {
        "digest": _digest,
        "repair": _repair,
        "repartition": _repartition,
    }
    try:
        print(json.dumps(jobs[args.job](spark, checkpoints, args)))
    except (RuntimeError, PySparkException, Py4JJavaError) as error:
        log.error("%s", sentence(str(error)))
        return 1
    finally:
        spark.stop()
    return 0


def sentence(said: str) -> str:
    """What went wrong, out of what Spark says of it: the first line, and the cause of all.

    >>> sentence("Job aborted.\\n\\tat a.b(C.scala:1)\\nCaused by: x.Y: no such file\\n\\tat d.e(F.scala:2)\\n\\t... 52 more")
    'Job aborted. Caused by: x.Y: no such file'
    """
    lines = [line.strip() for line in said.strip().splitlines()]
    return " ".join([*lines[:1], *[line for line in lines[1:] if line.startswith("Caused by:")][-1:]])


def _at(spark: SparkSession, checkpoints: str, args: argparse.Namespace, number: int) -> Checkpoint:
    return Checkpoint(spark, location(checkpoints, args.pipeline, args.operator, number))


def seam(before: Checkpoint, after: Checkpoint, batch: int | None, buckets: int | None = None) -> tuple[int, int]:
    """The last batch before a change, and the batch after it that holds the same state.

    Within one checkpoint that is the same batch, or the next one where that is a repartition; where a shadow took over, the last
    batch that it only repeated. `buckets`: to how many the state was repartitioned in place. Whoever was killed on the way may
    have told of another batch than the one before that, so it is looked for.
    """
    last = before.last_commit() if batch is None else batch
    if after.location != before.location:
        repeated = muted_until(after)
        if repeated is None:
            raise RuntimeError(
                f"the checkpoint at {after.location} has not taken over from {before.location}: nothing to compare"
            )
        return last, repeated
    begun = before.entry(last + 1)
    if begun is not None and begun.buckets != before.buckets(last) and last + 1 <= before.last_commit():
        return last, last + 1
    if buckets is None:
        return last, last
    committed = [n for n in before.committed() if before.buckets(n) == buckets]
    found = [n for n in committed if (was := before.buckets(n - 1)) is not None and was != buckets]
    if not found:
        raise RuntimeError(f"the log of {before.location} does not show when it was given {buckets} buckets: nothing to compare")
    return found[-1] - 1, found[-1]


def _digest(spark: SparkSession, checkpoints: str, args: argparse.Namespace) -> dict[str, Any]:
    before = _at(spark, checkpoints, args, args.checkpoint)
    after = _at(spark, checkpoints, args, args.checkpoint if args.checkpoint_to is None else args.checkpoint_to)
    batches = seam(before, after, args.batch, args.buckets)
    found: dict[str, list[Handle]] = {}
    moments = {"before": (before, batches[0]), "after": (after, batches[1])}
    # First what the running query will have forgotten soonest.
    for moment in reversed(moments) if before.location != after.location else moments:
        checkpoint, batch = moments[moment]
        found[moment] = digested(spark, checkpoint.location, batch)
        if not found[moment]:
            raise RuntimeError(f"{checkpoint.location} holds no state at batch {batch}: there is nothing to count")
    connection = connect("spillway digest", roles=ROLES)
    connection.autocommit = False
    with connection:
        for moment, (_, batch) in moments.items():
            for h in found[moment]:
                run(
                    connection, "job_bucket_handle", plan=args.plan, operator=args.operator, moment=moment, bucket=h.bucket,
                    batch_id=batch, location=h.location, version=h.version, bytes=h.bytes, rows=h.rows, checksum=h.checksum,
                )  # fmt: skip
    connection.close()
    sums = {
        m: {"rows": sum(h.rows or 0 for h in b), "checksum": sum(h.checksum or 0 for h in b) % 2**64} for m, b in found.items()
    }
    return {"batches": batches, **sums, "equal": sums["before"] == sums["after"]}


def _repair(spark: SparkSession, checkpoints: str, args: argparse.Namespace) -> dict[str, Any]:
    checkpoint = _at(spark, checkpoints, args, args.checkpoint)
    begun = unfinished(checkpoint)
    if begun is None:
        return {"repaired": False, "buckets": checkpoint.buckets(checkpoint.last_commit())}
    return {"repaired": True, "buckets": begun, "batch": repartition(spark, checkpoint.location, begun)}


def _repartition(spark: SparkSession, checkpoints: str, args: argparse.Namespace) -> dict[str, Any]:
    source, target = _at(spark, checkpoints, args, args.checkpoint), Checkpoint(spark, args.to)
    if target.exists():
        raise RuntimeError(f"there is something at {args.to} already, and it is not overwritten: give another place")
    cloned = clone(source, target)
    return {"cloned": cloned, "buckets": args.buckets, "batch": repartition(spark, args.to, args.buckets)}


if __name__ == "__main__":
    sys.exit(main())
