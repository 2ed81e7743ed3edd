"""Runs the suites of a gate over tables in memory. The context and the suites stay in the process; a table costs milliseconds."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import great_expectations as gx
import pandas as pd  # type: ignore[import-untyped]
from great_expectations.data_context.types.base import ProgressBarsConfig

from spillway.gates.suites import decision_suites, observation_suites
from spillway.gates.tables import Judged, Rows, decided, observed
from spillway.gates.verdict import UNKNOWN, Failure, Verdict
from spillway.model.window import Window

log = logging.getLogger("spillway.gates")
OBSERVATION, DECISION = "observation", "decision"
EVIDENCE_ROWS = 20


class Gate:
    """Suites by table. Great Expectations would keep all results of a validation definition, so batches go without one."""

    def __init__(self, name: str, suites: Mapping[str, list[gx.expectations.Expectation]]) -> None:
        self.name = name
        self.rules = sum(len(rules) for rules in suites.values())
        context = gx.get_context(mode="ephemeral")
        context.variables.progress_bars = ProgressBarsConfig(globally=False)
        source = context.data_sources.add_pandas(name)
        self._batches = {t: source.add_dataframe_asset(t).add_batch_definition_whole_dataframe("all") for t in suites}
        self._rules = {(t, rule.expectation_type): rule for t, rules in suites.items() for rule in rules}
        self._suites = {t: context.suites.add(gx.ExpectationSuite(t, expectations=rules)) for t, rules in suites.items()}

    def judge(self, tables: Mapping[str, Rows], pipelines: Iterable[str], on: Mapping[str, Iterable[str]]) -> Verdict:
        """`on`: which pipelines a row without one concerns, by its subject. Where a rule cannot be evaluated, nobody passes."""
        everyone = list(pipelines)
        failures: dict[str, list[Failure]] = {}
        for table, rows in tables.items():
            if not rows:
                continue
            try:
                found = self._failures(table, rows, everyone, on)
            except Exception as error:  # whatever Great Expectations raises, the quality is unknown
                log.exception("the suite %s could not be evaluated", table)
                found = [(p, _unknown(table, error)) for p in everyone]
            for pipeline, failure in found:
                failures.setdefault(pipeline, []).append(failure)
        return Verdict(gate=self.name, rules=self.rules, failures={p: tuple(f) for p, f in failures.items()})

    def _failures(
        self, table: str, rows: Rows, everyone: list[str], on: Mapping[str, Iterable[str]]
    ) -> list[tuple[str, Failure]]:
        frame = pd.DataFrame(rows)
        for column in frame.columns[frame.isna().all()]:
            frame[column] = frame[column].astype("float64")
        batch = self._batches[table].get_batch(batch_parameters={"dataframe": frame})
        if batch.validate(self._suites[table], result_format="BOOLEAN_ONLY").success:
            return []
        found: list[tuple[str, Failure]] = []
        detail = {"result_format": "COMPLETE", "include_unexpected_rows": False}
        for result in batch.validate(self._suites[table], result_format=detail).results:
            if not result.success:
                assert result.expectation_config is not None
                rule = self._rules[table, result.expectation_config.type]
                found += _explain(table, frame, rule, result, everyone, on)
        return found


def _explain(
    table: str, frame: pd.DataFrame, rule: Any, result: Any, everyone: list[str], on: Mapping[str, Iterable[str]]
) -> list[tuple[str, Failure]]:
    """One failure per pipeline that has rows which break the rule."""
    where, raised = result.result.get("unexpected_index_list"), _raised(result.exception_info)
    if where is None or raised:
        return [(p, _unknown(table, RuntimeError(raised or "it says nothing about rows"))) for p in everyone]
    columns = getattr(rule, "column_list", None) or [rule.column]
    rows: dict[str, list[dict[str, Any]]] = {}
    for index in where:
        row = frame.loc[index]
        shown = {"subject": row["subject"], **{c: _plain(row[c]) for c in columns if c != "pipeline"}}
        for pipeline in [row["pipeline"]] if "pipeline" in frame.columns else on.get(row["subject"], everyone):
            rows.setdefault(pipeline, []).append(shown)
    return [
        (
            pipeline,
            Failure(
                suite=table,
                rule=rule.expectation_type.removeprefix("expect_"),
                meaning=str(rule.description),
                evidence={"count": len(found), "rows": found[:EVIDENCE_ROWS]},
            ),
        )
        for pipeline, found in rows.items()
    ]


def _raised(info: Mapping[str, Any]) -> str:
    """What was raised, or nothing; `exception_info` has two shapes: of the expectation, or by metric."""
    parts = [info, *(part for part in info.values() if isinstance(part, dict))]
    return "; ".join(dict.fromkeys(str(p.get("exception_message")) for p in parts if p.get("raised_exception")))


def _unknown(table: str, error: Exception) -> Failure:
    said = " ".join(str(error).split()) or type(error).__name__
    return Failure(
        suite=table,
        rule=UNKNOWN,
        meaning="the gate could not be evaluated",
        evidence={"error": f"{type(error).__name__}: {said}"},
    )


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value.item() if hasattr(value, "item") else value


@cache
def _observation_gate(ahead_s: tuple[float, float]) -> Gate:
    return Gate(OBSERVATION, observation_suites(ahead_s))


@cache
def _decision_gate() -> Gate:
    return Gate(DECISION, decision_suites())


def warm_up(ahead_s: tuple[float, float]) -> None:
    """Builds the suites, so that the first cycle does not have to."""
    _observation_gate(ahead_s)
    _decision_gate()


def check_observation(window: Window, ahead_s: tuple[float, float]) -> Verdict:
    """`ahead_s`: how far clocks may run ahead of the store's, least and most (`Policy.qod_ahead_s`)."""
    on: dict[str, set[str]] = {}
    for instance in window.instances:
        on.setdefault(instance.node, set()).add(instance.pipeline)
    return _observation_gate(ahead_s).judge(observed(window), window.declared, on)


def check_decision(judged: Iterable[Judged]) -> Verdict:
    every = list(judged)
    return _decision_gate().judge(decided(every), [one.pipeline.name for one in every], {})
