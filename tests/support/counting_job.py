"""What `spark_jobs/offline.py digest` leaves behind, without any state: for tests of who submits it."""

from __future__ import annotations

import os
import sys

import psycopg2

given = dict(zip(sys.argv[2::2], sys.argv[3::2], strict=True))
assert sys.argv[1] == "digest", sys.argv
if given["--operator"] == os.environ.get("SPILLWAY_TEST_REFUSES"):
    sys.exit("there is no state at that batch")
conn = psycopg2.connect(os.environ["SPILLWAY_DSN_CONTROL"])
with conn, conn.cursor() as cursor:
    for moment in ("before", "after"):
        cursor.execute(
            "insert into spillway.bucket_handle (plan, operator, moment, bucket, batch_id, location, version, bytes, rows,"
            " checksum) values (%s, %s, %s, 0, 1, 'file:/x', 1, 1, 828, 4711)", (given["--plan"], given["--operator"], moment),
        )  # fmt: skip
conn.close()
