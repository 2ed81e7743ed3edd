"""Tables for people."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import ClassVar, Self

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from spillway.model.topology import Edge, Operator, Pipeline, SinkType
from spillway.store.status import ApplicationStatus, EdgeStatus, OperatorStatus, PipelineStatus

_COLORS = {"running": "green", "starting": "yellow", "stopping": "yellow", "launched": "yellow", "failed": "red", "silent": "red"}
_UNKNOWN = "–"


def console() -> Console:
    """As wide as the terminal; wide enough for every column where there is none."""
    plain = Console()
    return plain if plain.is_terminal else Console(width=200)


def print_status(pipelines: Sequence[PipelineStatus]) -> None:
    table = Table(
        "pipeline", "application", "state", "gen", "heartbeat", "operator", "batch", "rows/s", "lag", "keep", "accuracy"
    )
    for pipeline in pipelines:
        for application in pipeline.applications:
            for number, operator in enumerate(application.operators):
                edges = [e for e in application.edges if e.consumer == operator.operator]
                head = _application(pipeline, application) if number == 0 else ("", "", "", "", "")
                table.add_row(*head, *_operator(operator, edges))
        table.add_section()
    out = console()
    out.print(table)
    for pipeline in pipelines:
        for application in pipeline.applications:
            if application.detail:
                out.print(f"{pipeline.pipeline}/{application.application}: {escape(application.detail)}")
            if application.metrics_dropped:
                out.print(
                    f"{pipeline.pipeline}/{application.application}: {application.metrics_dropped} metric rows were dropped"
                )


def _application(pipeline: PipelineStatus, application: ApplicationStatus) -> tuple[str, str, str, str, str]:
    color = _COLORS.get(application.state, "default")
    wanted = "" if application.settled else f" (should be {application.desired})"
    where = f" on {application.node}" if application.node else ""
    return (
        f"{pipeline.pipeline} v{pipeline.version}",
        f"{application.application}{where}",
        f"[{color}]{application.state}[/]{wanted}",
        str(application.generation),
        _seconds(application.heartbeat_age_s),
    )


def _operator(operator: OperatorStatus, edges: Sequence[EdgeStatus]) -> tuple[str, ...]:
    batch = _UNKNOWN if operator.batch_id is None else f"{operator.batch_id} ({operator.batch_ms} ms)"
    lags = [e.lag_rows for e in edges]
    lag = _UNKNOWN if None in lags or not lags else f"{sum(x for x in lags if x is not None):,}"
    accuracy = _UNKNOWN if operator.accuracy is None else f"{operator.accuracy:.3f}"
    if operator.floor is not None:
        accuracy += f" (floor {operator.floor:g})"
        if operator.accuracy is not None and operator.accuracy < operator.floor - 0.01:
            accuracy = f"[red]{accuracy}[/]"
    rate = _UNKNOWN if operator.rows_per_s is None else f"{operator.rows_per_s:,.0f}"
    return operator.operator, batch, rate, lag, "\n".join(_keep(e) for e in edges), accuracy


def _keep(edge: EdgeStatus) -> str:
    if edge.keep is None:
        return f"{edge.edge} {edge.keep_set:g} (not reported)"
    behind = "" if abs(edge.keep - edge.keep_set) < 1e-9 else f", set to {edge.keep_set:g}"
    return f"{edge.edge} {edge.keep:g} ({edge.keep_source}{behind})"


def _seconds(age_s: float | None) -> str:
    return _UNKNOWN if age_s is None else f"{max(age_s, 0.0):.1f} s"


def print_pipeline(pipeline: Pipeline, version: int, applied_at: datetime, applied_by: str) -> None:
    out = console()
    out.print(
        f"[bold]{pipeline.name}[/] version {version}, applied {applied_at:%Y-%m-%d %H:%M:%S}Z by {applied_by}", highlight=False
    )
    if pipeline.description:
        out.print(escape(pipeline.description))
    out.print(
        f"trigger {pipeline.trigger_s:g} s, latency {pipeline.latency_constraint_s:g} s, "
        f"batch target {pipeline.batch_target_s:g} s, lineage {'on' if pipeline.lineage else 'off'}",
        highlight=False,
    )
    operators = Table("operator", "function", "kind", "buckets", "parallelism", "priority", "floor", "output", title="operators")
    for operator in pipeline.operators:
        operators.add_row(*_operator_row(operator))
    edges = Table("edge", "topic", "partitions", "delivery", "shed", "when silent", title="edges")
    for edge in pipeline.edges:
        edges.add_row(*_edge_row(edge))
    applications = Table(
        "application", "operators", "node", "executors", "slots", "memory (driver, executor)", title="applications"
    )
    for a in pipeline.applications:
        memory = f"{a.driver_memory_mb} MB, {a.executor_memory_mb} MB"
        applications.add_row(a.name, ", ".join(a.operators), a.node or "any", str(a.executors), str(a.slots), memory)
    for table in (operators, edges, applications):
        out.print(table)


def _operator_row(operator: Operator) -> tuple[str, ...]:
    p, query, output = operator.parallelism, operator.query, operator.output
    target = ""
    if output:
        target = {SinkType.KAFKA: f"topic {output.topic}", SinkType.POSTGRES: f"table {output.table}", SinkType.NONE: "none"}[
            output.type
        ]
    return (
        operator.name,
        operator.function,
        operator.kind + (", weighted" if operator.weight else ""),
        str(operator.buckets),
        f"{p.start} ({p.min} to {p.max})",
        str(query.priority) if query else "",
        f"{query.min_accuracy:g}" if query else "",
        target,
    )


def _edge_row(edge: Edge) -> tuple[str, ...]:
    delivery = edge.delivery if edge.producer else "from outside" + (", shared" if edge.shared else "")
    shed = f"{edge.shed}: {edge.utility}" if edge.utility else edge.shed
    return edge.name, edge.topic, str(edge.partitions), delivery, escape(shed), edge.when_silent


class Progress:
    """Lines that are rewritten in place on a terminal; elsewhere each new line once."""

    STYLES: ClassVar[dict[str, str]] = {
        "done": "green",
        "running": "yellow",
        "failed": "red",
        "undone": "magenta",
        "waiting": "dim",
    }

    def __init__(self, *, quiet: bool = False) -> None:
        self._console, self._quiet = console(), quiet
        self._live = Live(console=self._console, refresh_per_second=4) if self._console.is_terminal and not quiet else None
        self._seen: dict[int, tuple[str, str]] = {}

    def __enter__(self) -> Self:
        if self._live:
            self._live.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        if self._live:
            self._live.__exit__(None, None, None)

    def show(self, lines: Sequence[tuple[str, str]], foot: str) -> None:
        """Each line with the state it is about."""
        if self._live:
            drawn = [Text(line, style=self.STYLES.get(state, "")) for state, line in lines]
            self._live.update(Group(*drawn, Text(foot)))
        elif not self._quiet:
            for number, (state, line) in enumerate(lines):
                if state not in ("waiting", "running") and self._seen.get(number, ("", ""))[0] != state:
                    self._console.print(Text(line))
                self._seen[number] = state, line
