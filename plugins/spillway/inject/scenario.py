"""Scenario files: which events go to which topic at which rate, and which pipelines run meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from spillway.inject.events import EventError, Pool, check
from spillway.inject.profiles import Burst, Constant, Piecewise, Profile, Ramp, Sine, Step
from spillway.topology.document import read_document, read_text
from spillway.topology.problem import Problem, Problems
from spillway.topology.section import A_NAME, A_TOPIC, NAME, TOPIC, Section, describe

MAX_RATE = 5_000_000
MAX_POOL = 2_000_000
LONGEST = "24h"
SHAPES = ("constant", "step", "ramp", "sine", "burst")
A_RATE = "a number of events per second, one of the shapes constant, step, ramp, sine, burst, or a list of shapes with `for`"
A_FILE = "a UTF-8 YAML file with the fields name, duration and topics"


class ScenarioError(ValueError):
    """A scenario that cannot be played; one line per problem, with file, line, field and what is allowed."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicLoad:
    """The events of one topic."""

    topic: str
    events: str
    rate: Profile
    key: str | None = None
    """Field whose value becomes the Kafka key; None: no key, spread evenly over the partitions."""
    partitions: int | None = None
    """Asked of the broker when the topic is missing (then 4 by default), and checked when it exists."""
    garbage: float = 0.0
    pool: int = 20_000
    options: Mapping[str, Any] = field(default_factory=dict)

    def make_pool(self, seed: int) -> Pool:
        return Pool(
            self.events, seed=f"{seed}-{self.topic}", size=self.pool, key=self.key, garbage=self.garbage, options=self.options
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineRun:
    """When a pipeline is asked to run, and when to stop."""

    name: str
    start_at_s: float = 0.0
    stop_at_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    name: str
    duration_s: float
    topics: tuple[TopicLoad, ...]
    pipelines: tuple[PipelineRun, ...] = ()
    seed: int = 1
    description: str = ""


def load(path: str | Path) -> Scenario:
    """The scenario of a file, or a `ScenarioError` with every problem it has."""
    problems = Problems(file=str(path))
    text = read_text(path, problems)
    data = read_document(text, problems) if text is not None else None
    if data is None:
        raise ScenarioError([replace(p, allowed=A_FILE) if not p.field else p for p in problems.sorted()])
    scenario = _scenario(data, problems)
    if problems.found:
        raise ScenarioError(problems.sorted())
    return scenario


def parse(text: str, *, file: str = "<text>") -> Scenario:
    """A scenario given as text."""
    problems = Problems(file=file)
    data = read_document(text, problems)
    scenario = _scenario(data, problems) if data is not None else None
    if scenario is None or problems.found:
        raise ScenarioError(problems.sorted())
    return scenario


def _scenario(data: dict[str, Any], problems: Problems) -> Scenario:
    top = Section(data, "", problems, ("name", "description", "seed", "duration", "topics", "pipelines"))
    if not top.has("name"):
        top.missing("name", A_NAME)
    if not top.has("duration"):
        top.missing("duration", f"a duration from 1s to {LONGEST}, written like 90s or 2m")
    duration_s = top.duration("duration", 1.0, "1s", LONGEST)
    topics = top.mapping("topics", "a mapping of topic names to what is sent there")
    runs = top.items("pipelines", "a list of {name, start_at, stop_at}")
    if not topics:
        top.missing("topics", "at least one topic")
    for topic in topics:
        if not TOPIC.fullmatch(topic):
            top.wrong(f"topics.{topic}", f"{topic!r} is not a topic name", A_TOPIC)
    scenario = Scenario(
        name=top.text("name", "", A_NAME, NAME) or "",
        description=top.text("description", "", "a text") or "",
        seed=top.integer("seed", 1, 0, 2**53),
        duration_s=duration_s,
        topics=tuple(_topic(name, load, duration_s, problems) for name, load in topics.items()),
        pipelines=tuple(_run(run, number, duration_s, problems) for number, run in enumerate(runs)),
    )
    names = [run.name for run in scenario.pipelines]
    for number, name in enumerate(names):
        if name in names[:number]:
            top.wrong(f"pipelines[{number}].name", f"{name} is listed twice", "each pipeline once")
    return scenario


def _topic(name: str, data: Any, duration_s: float, problems: Problems) -> TopicLoad:
    section = Section(data, f"topics.{name}", problems, ("events", "key", "rate", "partitions", "garbage", "pool", "options"))
    kinds = "yellow, green, points, sentences, ads"
    if section.ok and not section.has("events"):
        section.missing("events", kinds)
    if section.ok and not section.has("rate"):
        section.missing("rate", A_RATE)
    load = TopicLoad(
        topic=name,
        events=section.text("events", None, kinds) or "points",
        key=section.text("key", None, "a field of the events"),
        rate=read_rate(section.data.get("rate", 0), section.at("rate"), duration_s, problems),
        partitions=section.integer("partitions", 4, 1, 1000) if section.has("partitions") else None,
        garbage=section.number("garbage", 0.0, 0.0, 1.0),
        pool=section.integer("pool", 20_000, 1, MAX_POOL),
        options=section.mapping("options", "options of the event kind"),
    )
    if not section.ok or not section.has("events"):
        return load
    try:
        check(load.events, key=load.key, options=load.options, size=load.pool, garbage=load.garbage)
    except EventError as error:
        section.wrong(error.field, error.message, error.allowed)
    return load


def _run(data: Any, number: int, duration_s: float, problems: Problems) -> PipelineRun:
    section = Section(data, f"pipelines[{number}]", problems, ("name", "start_at", "stop_at"))
    if section.ok and not section.has("name"):
        section.missing("name", "the name of an applied pipeline")
    start = section.duration("start_at", 0.0, "0s", LONGEST)
    stop = section.duration("stop_at", duration_s, "0s", LONGEST) if section.has("stop_at") else None
    if start > duration_s:
        section.wrong("start_at", f"{start:g}s is after the end of the scenario", f"0s to {duration_s:g}s")
    if stop is not None and not start < stop <= duration_s:
        allowed = f"after {start:g}s, up to {duration_s:g}s"
        section.wrong("stop_at", f"{stop:g}s is not between the start and the end of the scenario", allowed)
    return PipelineRun(name=section.text("name", "", A_NAME, NAME) or "", start_at_s=start, stop_at_s=stop)


def read_rate(data: Any, path: str, duration_s: float, problems: Problems) -> Profile:
    """A rate as files give it: a number, a shape, or shapes one after the other that last `duration_s` together."""
    if isinstance(data, list):
        return _pieces(data, path, duration_s, problems)
    if isinstance(data, dict):
        return _shape(data, path, problems, ())
    return Constant(_events_per_s(data, path, problems))


def _events_per_s(data: Any, path: str, problems: Problems) -> float:
    if isinstance(data, bool) or not isinstance(data, int | float):
        problems.add(path, f"is {describe(data)}, not a rate", A_RATE)
    elif not 0 <= data <= MAX_RATE:
        problems.add(path, f"{data} is outside [0, {MAX_RATE}]", f"events per second from 0 to {MAX_RATE}")
    else:
        return float(data)
    return 0.0


def _pieces(data: list[Any], path: str, duration_s: float, problems: Problems) -> Profile:
    if not data:
        problems.add(path, "has no pieces", A_RATE)
        return Constant(0.0)
    pieces: list[tuple[float, Profile]] = []
    for number, item in enumerate(data):
        here = f"{path}[{number}]"
        if not isinstance(item, dict):
            problems.add(here, f"is {describe(item)}, not a mapping", f"`for` and one of {', '.join(SHAPES)}")
            continue
        is_last = number == len(data) - 1
        if "for" not in item and not is_last:
            problems.add(f"{here}.for", "is missing", "a duration; only the last piece may go without")
        rest = max(0.001, duration_s - sum(length for length, _ in pieces))
        length = Section(item, here, problems, ("for", *SHAPES)).duration("for", rest if is_last else 1.0, "1ms", LONGEST)
        pieces.append((length, _shape({k: v for k, v in item.items() if k != "for"}, here, problems, ("for",))))
    total = sum(length for length, _ in pieces)
    if not problems.found and abs(total - duration_s) > 1e-6:
        allowed = "pieces that add up to the duration; the last may leave out `for`"
        problems.add(path, f"the pieces last {total:g}s, the scenario {duration_s:g}s", allowed)
    return Piecewise(tuple(pieces)) if pieces else Constant(0.0)


def _shape(data: dict[str, Any], path: str, problems: Problems, beside: tuple[str, ...]) -> Profile:
    section = Section(data, path, problems, (*beside, *SHAPES))
    named = [name for name in data if name in SHAPES]
    if len(named) != 1:
        found = f"names {', '.join(named)}" if named else "names no shape"
        problems.add(path, found, f"one of {', '.join(SHAPES)}")
        return Constant(0.0)
    shape = named[0]
    here = section.at(shape)
    if shape == "constant":
        return Constant(_events_per_s(data[shape], here, problems))
    needed, optional = FIELDS[shape]
    inner = Section(data[shape], here, problems, (*needed, *optional))
    if not inner.ok:
        return Constant(0.0)
    for name in needed:
        if not inner.has(name):
            inner.missing(name, "a duration" if name in DURATIONS else "events per second")
    rates = {n: inner.number(n, 0.0, 0, MAX_RATE) for n in (*needed, *optional) if n not in DURATIONS}
    times = {n: inner.duration(n, 1.0 if n != "phase" else 0.0, LEAST.get(n, "1ms"), LONGEST) for n in DURATIONS}
    return _build(shape, rates, times, inner)


DURATIONS = ("at", "over", "period", "phase", "every", "length")
LEAST = {"at": "0s", "phase": "0s"}
FIELDS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "step": (("from", "to", "at"), ()),
    "ramp": (("from", "to", "over"), ()),
    "sine": (("mean", "amplitude", "period"), ("phase",)),
    "burst": (("base", "peak", "every", "length"), ()),
}


def _build(shape: str, rates: dict[str, float], times: dict[str, float], section: Section) -> Profile:
    if shape == "step":
        return Step(before=rates["from"], after=rates["to"], at_s=times["at"])
    if shape == "ramp":
        return Ramp(start=rates["from"], end=rates["to"], over_s=times["over"])
    if shape == "sine":
        if rates["amplitude"] > rates["mean"]:
            section.wrong("amplitude", "is above the mean, the rate would be negative", f"0 to {rates['mean']:g}")
        return Sine(mean=rates["mean"], amplitude=rates["amplitude"], period_s=times["period"], phase_s=times["phase"])
    if times["length"] >= times["every"]:
        section.wrong("length", "is not shorter than the time between bursts", f"less than {times['every']:g}s")
    return Burst(base=rates["base"], peak=rates["peak"], every_s=times["every"], length_s=times["length"])
