"""How a change is made: what each kind can do, what pause it costs, and which one is the cheapest that does the job."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from spillway.model.rescale import Change, Kind, Outcome
from spillway.policy import Policy

MILLION = 1_000_000.0
DAY = timedelta(days=1)
ROWS_UNKNOWN = 1_000_000
"""State of an unknown size counts as large."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is to change, and of how much state."""

    executors: bool = False
    more: bool = False
    """Executors are added."""
    buckets: bool = False
    node: bool = False
    state_rows: int | None = 0
    """None: there is state, and nobody knows how much."""
    second_fits: bool = True
    """Whether there may be room for a second application beside the running one."""
    failed: frozenset[Kind] = frozenset()
    """Kinds that did not work with this application the last time, as a hand-over for which its executors found no room."""

    @property
    def rows(self) -> int:
        return ROWS_UNKNOWN if self.state_rows is None else self.state_rows


def lacks(kind: Kind, wanted: Wanted) -> str | None:
    """What a kind cannot do of what is wanted.

    >>> lacks(Kind.EXECUTORS, Wanted(executors=True, node=True)), lacks(Kind.SHADOW, Wanted(buckets=True))
    ('move it to another node', None)
    """
    if wanted.node and kind in (Kind.RESTART, Kind.EXECUTORS):
        return "move it to another node"
    if wanted.buckets and kind in (Kind.EXECUTORS, Kind.HANDOVER):
        return "change its buckets"
    return None


def choose_kind(wanted: Wanted, history: Iterable[Change], policy: Policy) -> tuple[Kind, str]:
    """The kind, and why.

    A node changes by hand-over, and together with buckets by a shadow, the only one that can do both. Buckets of a small state
    change while the query is stopped, those of a large one beside it. Where only executors change, the kind with the shortest
    expected pause is taken; restart, executors, hand-over are in the order of what they cost besides, so a later one has to
    gain a margin. Executors that a restart adds are cold when the query starts again; those of a hand-over have become warm.

    >>> policy = Policy()
    >>> choose_kind(Wanted(executors=True, state_rows=100_000), [], policy)
    (<Kind.RESTART: 'restart'>, 'the pause is the shortest: 1.5 s')
    >>> choose_kind(Wanted(executors=True, state_rows=5_000_000), [], policy)[0].value
    'handover'
    >>> choose_kind(Wanted(executors=True, more=True, state_rows=100_000), [], policy)
    (<Kind.HANDOVER: 'handover'>, 'the pause is the shortest: 1.9 s')
    >>> choose_kind(Wanted(executors=True, state_rows=5_000_000, failed=frozenset({Kind.HANDOVER})), [], policy)[0].value
    'executors'
    >>> choose_kind(Wanted(buckets=True, state_rows=5_000_000), [], policy)
    (<Kind.SHADOW: 'shadow'>, '5,000,000 rows of state are repartitioned beside the running query')
    """
    if wanted.node:
        return (Kind.SHADOW, "node and buckets change together") if wanted.buckets else (Kind.HANDOVER, "the node changes")
    if wanted.buckets:
        if wanted.state_rows is not None and wanted.rows <= policy.rescale_small_state_rows:
            return Kind.RESTART, f"{wanted.rows:,} rows of state are repartitioned while the query is stopped"
        size = "state of unknown size is" if wanted.state_rows is None else f"{wanted.rows:,} rows of state are"
        return Kind.SHADOW, f"{size} repartitioned beside the running query"
    past = list(history)
    best, shortest = Kind.RESTART, pause_s(Kind.RESTART, wanted, past, policy)
    able = [
        k for k in (Kind.EXECUTORS, Kind.HANDOVER) if k not in wanted.failed and (wanted.second_fits or k is not Kind.HANDOVER)
    ]
    for kind in able:
        pause = pause_s(kind, wanted, past, policy)
        if pause < shortest - policy.rescale_kind_margin_s:
            best, shortest = kind, pause
    return best, f"the pause is the shortest: {shortest:.1f} s"


def failed_lately(application: str, history: Iterable[Change], now: datetime) -> frozenset[Kind]:
    """Kinds whose last attempt of the day with an application was given up.

    >>> from spillway.decide.rescale.examples import NOW
    >>> def tried(kind: Kind, outcome: Outcome) -> Change:
    ...     return Change(at=NOW, operator="a", application="a", kind=kind, executors_from=1, executors_to=2, outcome=outcome)
    >>> given_up, made = tried(Kind.HANDOVER, Outcome.ROLLED_BACK), tried(Kind.HANDOVER, Outcome.DONE)
    >>> [sorted(failed_lately("a", found, NOW)) for found in ([given_up], [given_up, made])]
    [[<Kind.HANDOVER: 'handover'>], []]
    """
    last = {c.kind: c.outcome for c in history if c.application == application and now - c.over < DAY}
    return frozenset(kind for kind, outcome in last.items() if outcome is not Outcome.DONE)


def pause_s(kind: Kind, wanted: Wanted, history: Iterable[Change], policy: Policy) -> float:
    """The pause to expect: the model of the policy, times how much longer such changes really took.

    The factor is the geometric mean of observed over modelled pauses of that kind, the model itself counted as one observation: a
    single long pause moves it half way.

    >>> round(pause_s(Kind.RESTART, Wanted(buckets=True, state_rows=1_000_000), [], Policy()), 1)
    22.5
    """
    ratios = [
        c.pause_s / model
        for c in history
        if c.kind is kind and c.rebuckets == wanted.buckets and c.outcome is Outcome.DONE and c.pause_s
        for model in [_model_s(kind, c.rebuckets, c.up, c.state_rows or 0, policy)]
        if model > 0.0
    ]
    factor = math.exp(sum(map(math.log, ratios)) / (1 + len(ratios)))
    return factor * _model_s(kind, wanted.buckets, wanted.more, wanted.rows, policy)


def _model_s(kind: Kind, rebuckets: bool, more: bool, rows: int, policy: Policy) -> float:
    millions = rows / MILLION
    cold_s = policy.rescale_expected_pause_cold_s if more else 0.0
    if kind is Kind.RESTART and rebuckets:
        per_million = policy.rescale_expected_pause_repartition_s_per_million
        return cold_s + policy.rescale_expected_pause_repartition_s + per_million * millions
    if kind is Kind.RESTART:
        return cold_s + policy.rescale_expected_pause_restart_s + policy.rescale_expected_pause_restart_s_per_million * millions
    if kind is Kind.HANDOVER:
        return policy.rescale_expected_pause_handover_s + policy.rescale_expected_pause_handover_s_per_million * millions
    if kind is Kind.EXECUTORS:
        return policy.rescale_expected_pause_executors_s + policy.rescale_expected_pause_executors_s_per_million * millions
    return policy.rescale_expected_pause_shadow_s
