"""Scenario files: what is read from them, and what each mistake is answered with."""
# ruff: noqa: E501 (messages in one piece can be searched for)

from __future__ import annotations

from pathlib import Path

import pytest
from spillway.inject.profiles import Burst, Constant, Piecewise, Ramp, Sine, Step
from spillway.inject.scenario import PipelineRun, ScenarioError, load, parse
from spillway.topology import check_files

REPO = Path(__file__).parents[3]

GOOD = """
name: evening
seed: 5
duration: 60s
topics:
  t.a: {events: points, rate: 100}
  t.b: {events: ads, key: ad_id, partitions: 2, garbage: 0.01, pool: 1000, options: {campaigns: 3}, rate: {step: {from: 1, to: 2, at: 3s}}}
  t.c: {events: points, rate: {ramp: {from: 1, to: 2, over: 500ms}}}
  t.d: {events: points, rate: {sine: {mean: 5, amplitude: 5, period: 1m, phase: 15s}}}
  t.e: {events: points, rate: {burst: {base: 1, peak: 2, every: 10s, length: 1s}}}
  t.f: {events: points, rate: [{for: 20s, constant: 7}, {ramp: {from: 7, to: 0, over: 40s}}]}
pipelines:
  - {name: first}
  - {name: second, start_at: 10s, stop_at: 20s}
"""


def test_every_field_is_read() -> None:
    scenario = parse(GOOD)
    assert (scenario.name, scenario.seed, scenario.duration_s) == ("evening", 5, 60.0)
    assert [t.rate for t in scenario.topics] == [
        Constant(100.0),
        Step(before=1, after=2, at_s=3),
        Ramp(start=1, end=2, over_s=0.5),
        Sine(mean=5, amplitude=5, period_s=60, phase_s=15),
        Burst(base=1, peak=2, every_s=10, length_s=1),
        Piecewise(((20.0, Constant(7.0)), (40.0, Ramp(start=7, end=0, over_s=40)))),
    ]
    b = scenario.topics[1]
    assert (b.key, b.partitions, b.garbage, b.pool, b.options) == ("ad_id", 2, 0.01, 1000, {"campaigns": 3})
    assert scenario.pipelines == (
        PipelineRun(name="first"),
        PipelineRun(name="second", start_at_s=10.0, stop_at_s=20.0),
    )


HEAD = "name: x\nduration: 10s\n"
TOPIC = HEAD + "topics:\n  t:\n    events: points\n"
A_RATE = "a number of events per second, one of the shapes constant, step, ramp, sine, burst, or a list of shapes with `for`"

MISTAKES = {
    "empty": ("", "f.yaml:1: the file is empty; allowed: a UTF-8 YAML file with the fields name, duration and topics"),
    "no name": (
        "duration: 10s\ntopics: {t: {events: points, rate: 1}}\n",
        "f.yaml:1: name: is missing; allowed: a lower-case letter followed by up to 39 of a-z, 0-9 and _",
    ),
    "no topics": (HEAD, "f.yaml:1: topics: is missing; allowed: at least one topic"),
    "typo": (
        TOPIC + "    rat: 1\n    rate: 1\n",
        "f.yaml:6: topics.t.rat: unknown field (did you mean rate?); allowed: events, key, rate, partitions, garbage, pool, options",
    ),
    "duration without unit": (
        "name: x\nduration: 10\ntopics: {t: {events: points, rate: 1}}\n",
        "f.yaml:2: duration: the number 10 is not a duration with a unit; allowed: a duration from 1s to 24h, written like 500ms, 2s or 1m",
    ),
    "bad topic": (
        HEAD + "topics:\n  a b: {events: points, rate: 1}\n",
        "f.yaml:4: topics.a b: 'a b' is not a topic name; allowed: 1 to 249 of A-Z, a-z, 0-9, '.', '_' and '-'",
    ),
    "no rate": (TOPIC, f"f.yaml:4: topics.t.rate: is missing; allowed: {A_RATE}"),
    "rate text": (TOPIC + "    rate: fast\n", f"f.yaml:6: topics.t.rate: is the text 'fast', not a rate; allowed: {A_RATE}"),
    "rate negative": (
        TOPIC + "    rate: -5\n",
        "f.yaml:6: topics.t.rate: -5 is outside [0, 5000000]; allowed: events per second from 0 to 5000000",
    ),
    "two shapes": (
        TOPIC + "    rate: {constant: 1, burst: {}}\n",
        "f.yaml:6: topics.t.rate: names constant, burst; allowed: one of constant, step, ramp, sine, burst",
    ),
    "unknown shape": (
        TOPIC + "    rate: {saw: 1}\n",
        "f.yaml:6: topics.t.rate.saw: unknown field; allowed: constant, step, ramp, sine, burst\nf.yaml:6: topics.t.rate: names no shape; allowed: one of constant, step, ramp, sine, burst",
    ),
    "half a shape": (
        TOPIC + "    rate: {step: {from: 1, to: 2}}\n",
        "f.yaml:6: topics.t.rate.step.at: is missing; allowed: a duration",
    ),
    "negative sine": (
        TOPIC + "    rate: {sine: {mean: 5, amplitude: 6, period: 1s}}\n",
        "f.yaml:6: topics.t.rate.sine.amplitude: is above the mean, the rate would be negative; allowed: 0 to 5",
    ),
    "endless burst": (
        TOPIC + "    rate: {burst: {base: 1, peak: 6, every: 1s, length: 1s}}\n",
        "f.yaml:6: topics.t.rate.burst.length: is not shorter than the time between bursts; allowed: less than 1s",
    ),
    "no pieces": (TOPIC + "    rate: []\n", f"f.yaml:6: topics.t.rate: has no pieces; allowed: {A_RATE}"),
    "piece without for": (
        TOPIC + "    rate: [{constant: 1}, {constant: 2}]\n",
        "f.yaml:6: topics.t.rate[0].for: is missing; allowed: a duration; only the last piece may go without",
    ),
    "pieces too short": (
        TOPIC + "    rate: [{for: 3s, constant: 1}, {for: 4s, constant: 2}]\n",
        "f.yaml:6: topics.t.rate: the pieces last 7s, the scenario 10s; allowed: pieces that add up to the duration; the last may leave out `for`",
    ),
    "pieces too long": (
        TOPIC + "    rate: [{for: 12s, constant: 1}, {constant: 2}]\n",
        "f.yaml:6: topics.t.rate: the pieces last 12.001s, the scenario 10s; allowed: pieces that add up to the duration; the last may leave out `for`",
    ),
    "unknown events": (
        HEAD + "topics:\n  t: {events: blue, rate: 1}\n",
        "f.yaml:4: topics.t.events: 'blue' is not a kind of event; allowed: yellow, green, points, sentences, ads",
    ),
    "bad key": (
        TOPIC + "    rate: 1\n    key: x\n",
        "f.yaml:7: topics.t.key: 'x' is not a key of points events; allowed: no key, these events have no field to key by",
    ),
    "bad option": (
        TOPIC + "    rate: 1\n    options: {words: 1}\n",
        "f.yaml:7: topics.t.options.words: unknown option of points events; allowed: none for this kind",
    ),
    "bad garbage": (
        TOPIC + "    rate: 1\n    garbage: 2\n",
        "f.yaml:7: topics.t.garbage: 2 is outside [0, 1]; allowed: a number from 0 to 1",
    ),
    "no partitions": (
        TOPIC + "    rate: 1\n    partitions: 0\n",
        "f.yaml:7: topics.t.partitions: 0 is outside [1, 1000]; allowed: a whole number from 1 to 1000",
    ),
    "late pipeline": (
        TOPIC + "    rate: 1\npipelines: [{name: p, start_at: 11s}]\n",
        "f.yaml:7: pipelines[0].start_at: 11s is after the end of the scenario; allowed: 0s to 10s",
    ),
    "stop before start": (
        TOPIC + "    rate: 1\npipelines: [{name: p, start_at: 5s, stop_at: 4s}]\n",
        "f.yaml:7: pipelines[0].stop_at: 4s is not between the start and the end of the scenario; allowed: after 5s, up to 10s",
    ),
    "nameless pipeline": (
        TOPIC + "    rate: 1\npipelines: [{start_at: 5s}]\n",
        "f.yaml:7: pipelines[0].name: is missing; allowed: the name of an applied pipeline",
    ),
    "twice": (
        TOPIC + "    rate: 1\npipelines: [{name: p}, {name: p}]\n",
        "f.yaml:7: pipelines[1].name: p is listed twice; allowed: each pipeline once",
    ),
}


@pytest.mark.parametrize(("text", "message"), MISTAKES.values(), ids=MISTAKES)
def test_each_mistake_is_explained_where_it_is(text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("f.yaml").write_text(text)
    with pytest.raises(ScenarioError) as caught:
        load("f.yaml")
    assert sorted(str(caught.value).splitlines()) == sorted(message.splitlines())


def test_a_missing_file_is_one_sentence() -> None:
    with pytest.raises(ScenarioError, match=r"^nowhere\.yaml:1: no such file; allowed: "):
        load("nowhere.yaml")


def test_shipped_scenarios_fit_the_shipped_pipelines() -> None:
    checked = check_files(sorted((REPO / "pipelines").glob("*.yaml")))
    assert checked.problems == ()
    declared = {p.name: {e.topic: e.partitions for e in p.edges if e.producer is None} for p in checked.pipelines}
    files = sorted((REPO / "scenarios").glob("*.yaml"))
    fed = {}
    for scenario in map(load, files):
        (run,) = scenario.pipelines
        assert {t.topic: t.partitions for t in scenario.topics} == declared[run.name]
        fed[run.name] = scenario
    assert set(fed) == set(declared)


def test_rush_hour_asks_twice_of_the_heavy_query_and_then_calms_down() -> None:
    rush = load(REPO / "scenarios" / "rush_hour.yaml")

    def total(t: float) -> float:
        return sum(topic.rate.rate(t) for topic in rush.topics)

    assert total(10) == total(115) == 112.5
    assert total(60) == 600
