"""The shipped pipelines on the real line, as they are declared, against plain truth."""

from __future__ import annotations

import collections
import contextlib
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
from spillway.embedded import Stack
from spillway.inject.player import play
from spillway.inject.profiles import Constant
from spillway.inject.scenario import load
from spillway.model.campaigns import campaign_of_ad

from spark_jobs.operators.knn import vote
from tests.support.line import Line, driver_log, until

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("wordcount", "ads", "knn")
SECONDS = 8.0


def feed(line: Line, name: str) -> None:
    """A few seconds of the pipeline's own scenario, at a rate a test machine carries."""
    scenario = load(ROOT / "scenarios" / f"{name}.yaml")
    topics = tuple(replace(t, rate=Constant(500)) for t in scenario.topics)
    report = play(replace(scenario, duration_s=SECONDS, topics=topics, pipelines=()), line.env["SPILLWAY_KAFKA"])
    assert report.ok, report.problems


def good(line: Line, topic: str, **fields: type) -> list[dict[str, object]]:
    """The events of a source topic that are not garbage: every field is there and of its type."""
    found = []
    for *_, value in line.consume(topic):
        with contextlib.suppress(ValueError):
            event = json.loads(value)
            if isinstance(event, dict) and all(isinstance(event.get(f), kind) for f, kind in fields.items()):
                found.append(event)
    return found


@pytest.mark.integration
@pytest.mark.timeout(600)
def test_shipped_pipelines_answer_as_plain_python_does(stack: Stack) -> None:
    with contextlib.ExitStack() as lines:
        running = {n: lines.enter_context(Line(stack, (ROOT / "pipelines" / f"{n}.yaml").read_text())) for n in NAMES}
        for name, line in running.items():
            until(line.running, 180, f"{name} runs\n" + driver_log(stack))
        with ThreadPoolExecutor() as at_once:
            list(at_once.map(lambda name: feed(running[name], name), NAMES))
        for name, line in running.items():
            for edge in line.pipeline.edges:
                until(lambda line=line, edge=edge: line.caught_up(edge.name), 180, f"{name}: {edge.name} is read to its end")

        line = running["wordcount"]
        truth = collections.Counter(w for e in good(line, "wordcount.sentences", text=str) for w in str(e["text"]).split())
        newest: dict[str, int] = {}
        for record in line.records("wordcount.count.out"):
            newest[record["word"]] = max(newest.get(record["word"], 0), record["count"])
        assert newest == dict(truth) and len(truth) > 100

        line = running["knn"]
        points = good(line, "knn.points", x=float, y=float, z=float)
        answers = line.records("knn.classify.out")
        assert len(answers) == len(points) == len({a["lineage"] for a in answers})
        args = line.pipeline.operators[0].args
        at = np.array([[a["x"], a["y"], a["z"]] for a in answers[:200]])
        label, *_ = vote(at, args["k"], args["points"], args["classes"], args["seed"])
        assert [a["class"] for a in answers[:200]] == label.tolist()

        line = running["ads"]
        args = line.pipeline.operator("join").args
        campaigns = campaign_of_ad(args["seed"], args["campaigns"], args["ads_per_campaign"])
        views: collections.Counter[tuple[str, int]] = collections.Counter()
        for event in good(line, "ads.events", ad_id=str, event_type=str, event_time=int):
            if event["event_type"] == "view" and event["ad_id"] in campaigns:
                views[campaigns[str(event["ad_id"])], int(str(event["event_time"])) // 10_000 * 10] += 1
        counted: dict[tuple[str, int], int] = {}
        for record in line.records("ads.count.out"):
            start = datetime.fromisoformat(record["window_start"].replace("Z", "+00:00"))
            key = (record["campaign_id"], int(start.timestamp()))
            counted[key] = max(counted.get(key, 0), record["views"])
        assert counted == dict(views) and len(views) > 50
