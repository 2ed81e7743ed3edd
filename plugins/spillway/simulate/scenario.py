"""Scenario files of the twin: the injector's form (rates per topic), plus nodes, and topology files with costs per operator."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from math import inf
from pathlib import Path
from typing import Any

from spillway.inject.scenario import A_RATE, LONGEST, ScenarioError, read_rate
from spillway.model.topology import Operator, Pipeline
from spillway.policy import Policy, PolicyError
from spillway.simulate.world import Costs, Load, Physics, TwinEdge, TwinNode, TwinOperator, World, WorldError
from spillway.topology import check_files
from spillway.topology.document import read_document, read_text
from spillway.topology.problem import Problem, Problems
from spillway.topology.section import A_NAME, A_TOPIC, NAME, TOPIC, Section, one_of, suggest

TOP = ("name", "description", "seed", "duration", "nodes", "topics", "pipelines", "policy", "physics")
INJECTED = ("events", "key", "partitions", "garbage", "pool", "options")
"""Fields of a topic that only the injector reads; a scenario may be played on both."""
COSTS = ("fixed_ms", "driver_ms", "wait_ms", "per_arrived_us", "per_kept_us", "output")
A_FILE = "a UTF-8 YAML file with the fields name, duration, nodes, topics and pipelines"


@dataclass(frozen=True, slots=True, kw_only=True)
class TwinScenario:
    name: str
    duration_s: float
    world: World
    policy: Policy
    seed: int = 1
    description: str = ""


def load(path: str | Path) -> TwinScenario:
    """The scenario of a file, or a `ScenarioError` with every problem it has."""
    problems = Problems(file=str(path))
    text = read_text(path, problems)
    data = read_document(text, problems) if text is not None else None
    if data is None:
        raise ScenarioError([replace(p, allowed=A_FILE) if not p.field else p for p in problems.sorted()])
    scenario = _Reader(data, problems, Path(path).parent).scenario()
    if scenario is None or problems.found:
        raise ScenarioError(problems.sorted())
    return scenario


class _Reader:
    def __init__(self, data: dict[str, Any], problems: Problems, folder: Path) -> None:
        self.top = Section(data, "", problems, TOP)
        self.problems, self.folder = problems, folder
        self.duration_s = self.top.duration("duration", 1.0, "1s", LONGEST)
        self.nodes: tuple[TwinNode, ...] = ()

    def scenario(self) -> TwinScenario | None:
        top = self.top
        for name, allowed in (
            ("name", A_NAME),
            ("duration", f"a duration from 1s to {LONGEST}, written like 90s or 2m"),
            ("nodes", "a mapping of node names to {cores}"),
            ("topics", "a mapping of topic names to {rate}"),
            ("pipelines", "a list of {file}"),
        ):
            if not top.has(name):
                top.missing(name, allowed)
        self.nodes = tuple(self._node(n, d) for n, d in top.mapping("nodes", "a mapping of node names to {cores}").items())
        loads = tuple(self._load(n, d) for n, d in top.mapping("topics", "a mapping of topic names to {rate}").items())
        entries = top.items("pipelines", "a list of {file}")
        if top.data.get("pipelines") == []:
            top.wrong("pipelines", "is empty", "at least one {file}")
        operators, edges = self._pipelines(entries)
        policy = self._policy()
        physics = self._physics()
        if self.problems.found:
            return None
        try:
            world = World(nodes=self.nodes, operators=operators, edges=edges, loads=loads, physics=physics)
        except WorldError as error:
            raise ScenarioError([self._whole(str(error))]) from None
        return TwinScenario(
            name=top.text("name", "", A_NAME, NAME) or "",
            description=top.text("description", "", "a text") or "",
            seed=top.integer("seed", 1, 0, 2**53),
            duration_s=self.duration_s,
            world=world,
            policy=policy,
        )

    def _whole(self, message: str) -> Problem:
        return Problem(file=self.problems.file, line=1, field="", message=message, allowed="a world that fits together")

    def _node(self, name: str, data: Any) -> TwinNode:
        section = Section(data, f"nodes.{name}", self.problems, ("cores", "background", "from"))
        cores = section.number("cores", 1.0, 0.1, 4096)
        return TwinNode(
            name=name,
            cores=cores,
            background=section.number("background", 0.0, 0.0, 100.0 * cores),
            from_s=section.duration("from", 0.0, "0s", LONGEST),
        )

    def _load(self, topic: str, data: Any) -> Load:
        section = Section(data, f"topics.{topic}", self.problems, ("rate", *INJECTED))
        if not TOPIC.fullmatch(topic):
            self.top.wrong(f"topics.{topic}", f"{topic!r} is not a topic name", A_TOPIC)
        if section.ok and not section.has("rate"):
            section.missing("rate", A_RATE)
        return Load(topic=topic, rate=read_rate(section.data.get("rate", 0), section.at("rate"), self.duration_s, self.problems))

    def _pipelines(self, entries: list[Any]) -> tuple[tuple[TwinOperator, ...], tuple[TwinEdge, ...]]:
        operators: list[TwinOperator] = []
        edges: list[TwinEdge] = []
        qualify = len(entries) > 1
        for number, entry in enumerate(entries):
            known = ("file", "start_at", "stop_at", "operators")
            section = Section(entry, f"pipelines[{number}]", self.problems, known)
            pipeline = self._topology(section)
            if pipeline is None:
                continue
            from_s = section.duration("start_at", 0.0, "0s", LONGEST)
            to_s = section.duration("stop_at", self.duration_s, "0s", LONGEST) if section.has("stop_at") else inf
            if from_s > self.duration_s:
                section.wrong("start_at", "is after the end of the scenario", f"0s to {self.duration_s:g}s")
            if not from_s < to_s:
                section.wrong("stop_at", "is not after the start", f"after {from_s:g}s")
            changes = section.mapping("operators", "a mapping of operators to {nodes, costs, priority, min_accuracy}")
            names = [o.name for o in pipeline.operators]
            for name in changes:
                if name not in names:
                    allowed = one_of(names)
                    section.wrong(
                        f"operators.{name}", f"pipeline {pipeline.name} has no such operator{suggest(name, names)}", allowed
                    )
            before = f"{pipeline.name}/" if qualify else ""
            for operator in pipeline.operators:
                at = section.at(f"operators.{operator.name}")
                made = self._operator(pipeline, operator, changes.get(operator.name, {}), at)
                operators.append(replace(made, name=before + operator.name, from_s=from_s, to_s=to_s))
            for edge in pipeline.edges:
                producer = None if edge.producer is None else before + edge.producer
                topic = edge.topic if producer is None else None
                edges.append(TwinEdge(topic=topic, producer=producer, consumer=before + edge.consumer))
        return tuple(operators), tuple(edges)

    def _topology(self, section: Section) -> Pipeline | None:
        if section.ok and not section.has("file"):
            section.missing("file", "the path of a topology file, from the folder of this file")
        file = section.text("file", None, "the path of a topology file, from the folder of this file")
        if file is None:
            return None
        checked = check_files([self.folder / file])
        for problem in checked.problems:
            where = f"line {problem.line}: {problem.field}: " if problem.field else ""
            section.wrong("file", f"{file}: {where}{problem.message}", problem.allowed)
        return checked.pipelines[0] if checked.pipelines else None

    def _operator(self, pipeline: Pipeline, operator: Operator, changes: Any, path: str) -> TwinOperator:
        known = ("nodes", "costs", "priority", "min_accuracy")
        section = Section(changes, path, self.problems, known)
        application = next(a for a in pipeline.applications if operator.name in a.operators)
        query = operator.query
        if query is None:
            for name in ("priority", "min_accuracy"):
                if section.has(name):
                    section.wrong(name, f"{operator.name} is no query, something reads from it", "queries only")
        names = [n.name for n in self.nodes]
        nodes = section.texts("nodes", one_of(names)) if section.has("nodes") else ()
        if section.has("nodes") and not nodes:
            section.wrong("nodes", "is empty", "one node per instance")
        if not nodes and application.node is not None:
            nodes = (application.node,) * operator.parallelism.start
        if not nodes:
            section.wrong("nodes", f"application {application.name} may run anywhere, so the twin cannot place it", one_of(names))
        for node in nodes:
            if node not in names:
                section.wrong("nodes", f"there is no node {node}{suggest(node, names)}", one_of(names))
        return TwinOperator(
            name=operator.name,
            nodes=nodes,
            costs=self._costs(section),
            slots=float(application.slots),
            trigger_s=pipeline.trigger_s,
            target_s=pipeline.batch_target_s,
            priority=section.integer("priority", query.priority, -(2**31), 2**31) if query else None,
            min_accuracy=section.number("min_accuracy", query.min_accuracy, 0.0, 1.0) if query else None,
        )

    def _costs(self, section: Section) -> Costs:
        inner = Section(section.data.get("costs", {}), section.at("costs"), self.problems, COSTS)
        usual = Costs()
        return Costs(
            fixed_s=inner.number("fixed_ms", usual.fixed_s * 1e3, 0, 600_000) / 1e3,
            driver_s=inner.number("driver_ms", usual.driver_s * 1e3, 0, 600_000) / 1e3,
            wait_s=inner.number("wait_ms", usual.wait_s * 1e3, 0, 600_000) / 1e3,
            per_arrived_s=inner.number("per_arrived_us", usual.per_arrived_s * 1e6, 0, 1e9) / 1e6,
            per_kept_s=inner.number("per_kept_us", usual.per_kept_s * 1e6, 0, 1e9) / 1e6,
            output=inner.number("output", usual.output, 0, 1e6),
        )

    def _physics(self) -> Physics:
        section = Section(
            self.top.mapping("physics", "a mapping"), "physics", self.problems, tuple(f.name for f in fields(Physics))
        )
        usual = Physics()
        return Physics(
            step_s=section.number("step_s", usual.step_s, 0.01, 5.0),
            delay_s=section.number("delay_s", usual.delay_s, 0.0, 600.0),
            down_s=section.number("down_s", usual.down_s, 0.0, 3600.0),
            cold_s=section.number("cold_s", usual.cold_s, 0.0, 3600.0),
            cold_factor=section.number("cold_factor", usual.cold_factor, 1.0, 100.0),
            cpu_noise=section.number("cpu_noise", usual.cpu_noise, 0.0, 0.5),
        )

    def _policy(self) -> Policy:
        values = self.top.mapping("policy", "a mapping of fields of the policy to values")
        known = [f.name for f in fields(Policy)]
        for name in values:
            if name not in known:
                self.top.wrong(f"policy.{name}", f"unknown field{suggest(name, known)}", "fields of the policy")
        try:
            return Policy(**{name: value for name, value in values.items() if name in known})
        except PolicyError as error:
            self.top.wrong("policy", str(error), "values in range")
            return Policy()
