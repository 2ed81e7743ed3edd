"""Checks that need the whole pipeline, or several: the shape of the graph, who claims which topic, who runs what."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from spillway.model.topology import Pipeline, SinkType
from spillway.topology.declare import Declared
from spillway.topology.problem import Problems


def check_graph(declared: Declared, problems: Problems) -> None:
    pipeline = declared.pipeline
    cyclic = _check_cycles(declared, problems)
    reached = _reachable(pipeline)
    fed = {edge.consumer for edge in pipeline.edges}
    for operator in pipeline.operators:
        path = f"operators.{operator.name}"
        if operator.name in declared.excused:
            continue
        if operator.name not in fed:
            problems.add(path, "nothing flows into this operator", f"at least one edge with `to: {operator.name}`")
        elif operator.name not in reached and operator.name not in cyclic and not declared.excused:
            problems.add(
                path, "no topic from outside reaches this operator", "a path of edges from a `topic` edge to every operator"
            )


def _check_cycles(declared: Declared, problems: Problems) -> set[str]:
    """Reports one cycle for every knot of operators; returns all operators that lie on one."""
    pipeline = declared.pipeline
    following: dict[str, list[str]] = {o.name: [] for o in pipeline.operators}
    for edge in pipeline.edges:
        if edge.producer is not None:
            following[edge.producer].append(edge.consumer)
    cyclic: set[str] = set()
    for operator in pipeline.operators:
        if operator.name in cyclic:
            continue
        cycle = _shortest_way(following, operator.name, operator.name)
        if cycle is None:
            continue
        cyclic.update(
            other
            for other in following
            if _shortest_way(following, operator.name, other) and _shortest_way(following, other, operator.name)
        )
        steps = set(pairwise(cycle))
        path = [p for p, e in zip(declared.edge_paths, pipeline.edges, strict=True) if (e.producer, e.consumer) in steps][-1]
        problems.add(path, f"closes the cycle {' → '.join(cycle)}", "a graph without cycles: remove one edge of the cycle")
    return cyclic


def _shortest_way(following: dict[str, list[str]], start: str, goal: str) -> list[str] | None:
    """Operators from start to goal over at least one edge."""
    came_from: dict[str, str] = {}
    queue = [start]
    for current in queue:
        for target in following[current]:
            if target == goal:
                way = [goal, current]
                while way[-1] != start:
                    way.append(came_from[way[-1]])
                return way[::-1]
            if target not in came_from and target != start:
                came_from[target] = current
                queue.append(target)
    return None


def _reachable(pipeline: Pipeline) -> set[str]:
    reached: set[str] = set()
    frontier = {e.consumer for e in pipeline.edges if e.producer is None}
    while frontier:
        reached |= frontier
        frontier = {e.consumer for e in pipeline.edges if e.producer in frontier} - reached
    return reached


def check_buckets(pipeline: Pipeline, problems: Problems) -> None:
    for operator in pipeline.operators:
        most = operator.parallelism.max
        if operator.buckets < most:
            path = f"operators.{operator.name}.buckets"
            problems.add(
                path,
                f"{operator.buckets} buckets cannot be shared by {most} instances (parallelism.max): some would have none",
                f"buckets of at least {most}, or a smaller parallelism.max",
            )


def check_applications(pipeline: Pipeline, problems: Problems) -> None:
    runs: dict[str, str] = {}
    for application in pipeline.applications:
        for number, operator in enumerate(application.operators):
            if operator in runs:
                problems.add(
                    f"applications.{application.name}.operators[{number}]",
                    f"operator {operator} already runs in application {runs[operator]}",
                    "each operator in exactly one application",
                )
            runs.setdefault(operator, application.name)
    for operator in (o.name for o in pipeline.operators):
        if operator not in runs:
            problems.add(
                "applications",
                f"operator {operator} runs in no application",
                "each operator in exactly one application, or no `applications` for one application per operator",
            )


def written_topics(pipeline: Pipeline) -> dict[str, str]:
    """Topics the pipeline writes, with what it writes there."""
    topics = {e.topic: f"edge {e.name}" for e in pipeline.edges if e.producer is not None}
    for operator in pipeline.operators:
        if operator.output and operator.output.type is SinkType.KAFKA and operator.output.topic:
            topics.setdefault(operator.output.topic, f"output of {operator.name}")
        topics.setdefault(pipeline.dead_letter_topic(operator.name), f"dead letters of {operator.name}")
    return topics


def same_to_kafka(topic: str) -> str:
    """Kafka refuses a topic whose name differs from another's only by . and _."""
    return topic.replace(".", "_")


def claimed_topics(pipeline: Pipeline) -> tuple[str, ...]:
    """Topics only this pipeline may touch: all it writes, and external ones it does not share."""
    alone = [e.topic for e in pipeline.edges if e.producer is None and not e.shared]
    return tuple(dict.fromkeys([*written_topics(pipeline), *alone]))


def shared_topics(pipeline: Pipeline) -> tuple[str, ...]:
    return tuple(e.topic for e in pipeline.edges if e.producer is None and e.shared)


def check_topics(declared: Declared, problems: Problems) -> None:
    """No topic twice within one pipeline."""
    pipeline = declared.pipeline
    uses: dict[str, str] = {}

    looks: dict[str, str] = {}

    def use(topic: str, what: str, path: str, allowed: str) -> None:
        if topic in uses:
            problems.add(path, f"topic {topic} is already used by {uses[topic]}", allowed)
        elif looks.setdefault(same_to_kafka(topic), topic) != topic:
            twin = looks[same_to_kafka(topic)]
            problems.add(
                path,
                f"Kafka cannot tell topic {topic} from topic {twin} of {uses[twin]}",
                "names that differ in more than . and _",
            )
        uses.setdefault(topic, what)

    names: dict[str, str | None] = {}
    once = "each topic on one edge; to read it twice, let one operator read it and feed both"
    for path, edge in zip(declared.edge_paths, pipeline.edges, strict=True):
        if edge.name in names and (edge.producer is None) != (names[edge.name] is None):
            problems.add(
                path, f"another edge is also called {edge.name}", "topics from outside that are not named like an operator"
            )
        elif edge.name in names and edge.producer:
            problems.add(path, f"the edge {edge.name} is there twice", "one edge per pair of operators")
        else:
            use(edge.topic, f"edge {edge.name}", path if edge.producer else f"{path}.topic", once)
        names.setdefault(edge.name, edge.producer)
    for operator in pipeline.operators:
        if operator.output and operator.output.topic:
            path = f"operators.{operator.name}.output.topic"
            use(operator.output.topic, f"the output of {operator.name}", path, "a topic that nothing else in the pipeline uses")
    for operator in pipeline.operators:
        topic = pipeline.dead_letter_topic(operator.name)
        use(topic, f"the dead letters of {operator.name}", f"operators.{operator.name}", f"leave {topic} to the dead letters")


def check_together(files: Sequence[tuple[Declared, Problems]]) -> None:
    """Two files that declare one pipeline, or claim one topic."""
    for number, (declared, problems) in enumerate(files):
        pipeline = declared.pipeline
        for earlier, earlier_problems in files[:number]:
            other = earlier.pipeline
            if other.name == pipeline.name:
                problems.add(
                    "pipeline", f"{other.name} is also declared in {earlier_problems.file}", "a name of its own for each pipeline"
                )
                continue
            for topic in clashes(pipeline, other):
                problems.add(
                    _path_of(declared, topic),
                    f"topic {topic} is claimed by pipeline {pipeline.name} and by {other.name} ({earlier_problems.file})",
                    "a topic in one pipeline, or `shared: true` on the edge of both where both only read it",
                )


def clashes(a: Pipeline, b: Pipeline) -> tuple[str, ...]:
    """Topics that both pipelines touch and at least one wants for itself."""
    claims_a, claims_b = set(claimed_topics(a)), {same_to_kafka(t) for t in claimed_topics(b)}
    touched_a, touched_b = claims_a | set(shared_topics(a)), claims_b | {same_to_kafka(t) for t in shared_topics(b)}
    return tuple(
        sorted({t for t in claims_a if same_to_kafka(t) in touched_b} | {t for t in touched_a if same_to_kafka(t) in claims_b})
    )


def _path_of(declared: Declared, topic: str) -> str:
    for path, edge in zip(declared.edge_paths, declared.pipeline.edges, strict=True):
        if edge.topic == topic:
            return f"{path}.topic" if edge.producer is None else path
    for operator in declared.pipeline.operators:
        if operator.output and operator.output.topic == topic:
            return f"operators.{operator.name}.output.topic"
    return "operators"
