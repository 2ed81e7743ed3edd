"""What is to be done inside Airflow's process: `python dags.py parse FOLDER`, `python dags.py test FOLDER DAG …`."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

HEAVY = (
    "pyspark",
    "pandas",
    "numpy",
    "psycopg2",
    "great_expectations",
    "confluent_kafka",
    "requests",
    "psutil",
    "scipy",
    "networkx",
)


def parse(folder: Path) -> dict[str, Any]:
    """CPU seconds and heavy modules of executing each file, Airflow itself being there already."""
    import importlib.util

    from airflow.sdk import DeltaDataIntervalTimetable, dag, task  # noqa: F401

    before = set(sys.modules)
    cost = {}
    for file in sorted(folder.glob("*.py")):
        spec = importlib.util.spec_from_file_location(f"parsed_{file.stem}", file)
        assert spec is not None
        assert spec.loader is not None
        started = time.process_time()
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
        cost[file.name] = time.process_time() - started
    new = {name.split(".")[0] for name in set(sys.modules) - before}
    return {"cpu_s": cost, "heavy": sorted(new.intersection(HEAVY)), **bag(folder)}


def bag(folder: Path) -> dict[str, Any]:
    from airflow.dag_processing.dagbag import DagBag
    from airflow.serialization.serialized_objects import DagSerialization

    found = DagBag(dag_folder=str(folder))
    dags = {}
    for dag_id, dag in found.dags.items():
        DagSerialization.serialize_dag(dag)
        dags[dag_id] = {
            "catchup": dag.catchup,
            "max_active_runs": dag.max_active_runs,
            "start_date": dag.start_date.isoformat(),
            "timetable": type(dag.timetable).__name__,
            "every_s": delta.total_seconds() if (delta := getattr(dag.timetable, "delta", None)) else None,
            "tasks": sorted(dag.task_dict),
        }
    return {"errors": found.import_errors, "dags": dags}


def test(folder: Path, *steps: str) -> list[dict[str, Any]]:
    """Runs DAGs one after the other (only the first costs seconds); NAME=value sets a variable in between."""
    from airflow.dag_processing.dagbag import DagBag

    dags, told = DagBag(dag_folder=str(folder)).dags, []
    for step in steps:
        name, assigned, value = step.partition("=")
        if assigned:
            os.environ[name] = value
            continue
        run = dags[name].test()
        told.append({"state": str(run.state), "tasks": {ti.task_id: str(ti.state) for ti in run.get_task_instances()}})
    return told


if __name__ == "__main__":
    what, where, *more = sys.argv[1:]
    print("\n" + json.dumps({"parse": parse, "test": test}[what](Path(where), *more)))
