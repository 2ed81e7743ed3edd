"""Imported by Airflow when it starts, where this folder is on the path: the scheduler's alone.

Its tasks are forks of it, so what it has imported they have for nothing; Great Expectations alone costs seconds.
"""

import sys

if sys.argv[1:2] == ["scheduler"]:
    from spillway.act.preload import preload

    preload()
