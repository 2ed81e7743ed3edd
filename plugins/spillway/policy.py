"""Every tunable once: unit in the name, default, range. Standard library and `model` only, because it ships to Spark.

A policy comes from a YAML file (`Policy.load(path)`, or the file SPILLWAY_POLICY names) and from single variables
`SPILLWAY_POLICY_<FIELD>`, which win.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from spillway.model import periods

VARIABLE = "SPILLWAY_POLICY_"


class PolicyError(ValueError):
    """One sentence that names the field and its range."""


def _tunable(default: float | int, low: float, high: float, meaning: str) -> Any:
    return field(default=default, metadata={"low": low, "high": high, "meaning": meaning})


def _choice(default: str, choices: tuple[str, ...], meaning: str) -> Any:
    return field(default=default, metadata={"choices": choices, "meaning": meaning})


def _periods(default: str, meaning: str) -> Any:
    return field(default=default, metadata={"periods": True, "meaning": meaning})


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    # leases and heartbeats of drivers
    lease_s: float = _tunable(600.0, 30.0, 86_400.0, "how long a driver lives on without renewing its lease (Postgres away)")
    heartbeat_s: float = _tunable(2.0, 0.5, 60.0, "how often a driver renews its lease and writes its heartbeat")
    fence_s: float = _tunable(15.0, 3.0, 600.0, "a lease not renewed for this long may be taken by a newer generation")
    launch_timeout_s: float = _tunable(90.0, 10.0, 3_600.0, "a launched driver must show its first heartbeat within this")
    stop_timeout_s: float = _tunable(60.0, 5.0, 3_600.0, "a driver asked to stop at a batch boundary is killed after this")
    silent_s: float = _tunable(45.0, 6.0, 3_600.0, "a driver whose process runs but gave no heartbeat for this long is killed")
    give_up_s: float = _tunable(120.0, 10.0, 86_400.0, "a silent driver whose end cannot be confirmed is replaced after this")
    # settings
    setting_poll_s: float = _tunable(0.5, 0.1, 60.0, "how often a driver reads its settings when no notification comes")
    # metrics
    metric_flush_s: float = _tunable(1.0, 0.1, 60.0, "how often a driver's metric writer flushes")
    metric_buffer_rows: int = _tunable(10_000, 100, 10_000_000, "rows a driver holds while Postgres is slow or away")
    metric_timeout_s: float = _tunable(5.0, 0.5, 60.0, "a write to Postgres that takes longer is given up and tried again")
    executor_rows_s: float = _tunable(15.0, 5.0, 3_600.0, "how often a driver asks its REST API for the rows of each executor")
    retention_days: int = _tunable(7, 1, 3_650, "days of metrics and events that are kept")
    partitions_ahead_days: int = _tunable(7, 1, 60, "days of metric partitions made ahead")
    agent_interval_s: float = _tunable(5.0, 1.0, 300.0, "how often the agent beside a worker measures")
    agent_buffer_rows: int = _tunable(20_000, 100, 10_000_000, "rows the agent holds while Postgres is away")
    airflow_retention_days: int = _tunable(3, 1, 3_650, "days of Airflow's own runs and task logs that are kept")
    # batches
    batch_rows_first: int = _tunable(10_000, 1, 100_000_000, "bound of the first batch, before anything is known")
    batch_rows_min: int = _tunable(10, 1, 100_000_000, "bound of a batch that no slowness of the operator undercuts")
    batch_rows_max: int = _tunable(2_000_000, 1, 1_000_000_000, "bound of a batch that no speed of the operator exceeds")
    # shedding
    utility_half_life_s: float = _tunable(60.0, 1.0, 86_400.0, "a batch's utilities count half as much after this, `by_utility`")
    # spillway_streams and spillway_housekeeping
    streams_interval_s: float = _tunable(15.0, 5.0, 3_600.0, "how often spillway_streams brings what runs to what is declared")
    housekeeping_interval_s: float = _tunable(3_600.0, 60.0, 86_400.0, "how often spillway_housekeeping runs")
    backoff_first_s: float = _tunable(5.0, 0.0, 3_600.0, "pause before the second launch in a row")
    backoff_factor: float = _tunable(2.0, 1.0, 10.0, "growth of the pause with every further launch")
    backoff_most_s: float = _tunable(300.0, 1.0, 86_400.0, "longest pause between launches")
    healthy_s: float = _tunable(30.0, 1.0, 86_400.0, "an application that ran this long starts again without a pause")
    # quality of data; accuracies and keeps are fractions, CPU is in percent of a core
    qod_cycle_s: float = _tunable(15.0, 5.0, 300.0, "how often keeps are decided anew")
    qod_stale_cycles: float = _tunable(3.0, 1.0, 100.0, "metrics older than this many cycles decide nothing")
    qod_drain_horizon_s: float = _tunable(30.0, 1.0, 3_600.0, "a backlog is to be gone after this long")
    qod_lag_ignored_s: float = _tunable(0.0, 0.0, 60.0, "lag up to this many seconds of arrivals is the batch in flight")
    qod_headroom: float = _tunable(
        0.08, 0.0, 0.5, "share of a node's cores, and of an instance's, that shedding leaves free; floors may use it"
    )
    qod_tolerance: float = _tunable(0.02, 0.0, 0.5, "a change of accuracy smaller than this is not published")
    qod_raise_limit: float = _tunable(0.1, 0.01, 1.0, "accuracy a query may gain in one cycle")
    qod_raise_cycles: int = _tunable(2, 1, 20, "cycles in a row that must allow a higher accuracy before it is given")
    qod_warm_up_s: float = _tunable(60.0, 1.0, 3_600.0, "an instance counts as warming for no longer than this")
    qod_keep_ttl_s: float = _tunable(60.0, 5.0, 3_600.0, "a published keep falls back to what the topology declares after this")
    qod_settle_s: float = _tunable(1.5, 0.0, 60.0, "measurements of a window may take this long to be stored")
    qod_clock_skew_s: float = _tunable(
        2.0, 0.1, 300.0, "whoever dates measurements this much later than they were stored, or that much earlier, is not believed"
    )
    qod_learn_s: float = _tunable(
        600.0, 60.0, 86_400.0, "what operators cost is learned from this long a past, with cpu_model affine"
    )
    qod_seed: int = _tunable(0, 0, 2**31 - 1, "decides between nodes with equally much CPU to spare")
    cpu_model: str = _choice("proportional", ("proportional", "affine"), "how the CPU of an operator follows from its rows")
    learn_batches_min: int = _tunable(8, 4, 10_000, "batches an operator must have run before its cost is learned")
    learn_spread_min: float = _tunable(
        0.1, 0.01, 10.0, "spread of its rates, as a share of their mean, that is enough to learn from"
    )
    learn_error_most: float = _tunable(0.25, 0.01, 1.0, "mean error, as a share of the mean CPU, above which nothing is learned")
    # capacity and bottleneck
    capacity_cycle_s: float = _tunable(60.0, 15.0, 3_600.0, "how often capacities and bottlenecks are looked for")
    capacity_warm_up_s: float = _tunable(30.0, 0.0, 3_600.0, "batches this soon after the start of their driver tell no capacity")
    capacity_over_flow: float = _tunable(0.25, 0.0, 10.0, "share of a capacity by which a measured flow may lie above it")
    capacity_lambda: float = _tunable(
        0.85, 0.85, 1.0, "an operator filled up to this share of its capacity is a potential bottleneck"
    )
    capacity_space_min: float = _tunable(
        0.01, 0.0, 0.15, "room of less than this share of a capacity is none, and limits this close together are one"
    )
    capacity_backlog_ignored_s: float = _tunable(
        0.0, 0.0, 60.0, "what waits counts as a backlog above this many seconds of its flow"
    )
    capacity_near_share: float = _tunable(0.1, 0.0, 0.5, "a flow this close to a capacity is at it, for regulation by latency")
    capacity_fast_share: float = _tunable(0.5, 0.0, 1.0, "a latency below this share of its constraint is far below it")
    # rescale: when; utilisations are shares of a capacity
    rescale_persist_evaluations: int = _tunable(
        3, 1, 1_000, "evaluations in a row that must name a bottleneck before it is scaled up"
    )
    rescale_target_utilisation: float = _tunable(0.75, 0.1, 1.0, "how busy an operator is to be after it was scaled up")
    rescale_up_utilisation: float = _tunable(
        0.9, 0.1, 1.0, "an operator that would be busier than this at the needed rate is scaled up in the same decision"
    )
    rescale_down_utilisation: float = _tunable(
        0.6, 0.05, 1.0, "an operator is scaled down only as far as its peak would have kept it no busier than this"
    )
    rescale_down_window_s: float = _tunable(
        86_400.0,
        60.0,
        2_592_000.0,
        "how long the past that a scaling down must have fitted is; less than a day chases every night",
    )
    rescale_down_saves: float = _tunable(0.2, 0.0, 1.0, "a scaling down must free at least this share of a pipeline's executors")
    rescale_drain_horizon_s: float = _tunable(600.0, 1.0, 86_400.0, "a backlog is to be gone this long after a scaling up")
    rescale_cooldown_up_s: float = _tunable(
        180.0, 0.0, 86_400.0, "after a change of the pipeline nothing is scaled up for this long"
    )
    rescale_cooldown_down_s: float = _tunable(
        3_600.0, 0.0, 604_800.0, "after a change of the pipeline nothing is scaled down for this long"
    )
    rescale_quota_per_day: int = _tunable(
        4, 0, 100_000, "decisions within 24 hours that may rescale a pipeline; half of them are kept for scaling up"
    )
    rescale_frozen: str = _periods("", "when nothing is rescaled, such as 22:00-06:00, sat-sun 00:00-24:00, in UTC")
    # rescale: how far
    rescale_node_idle: float = _tunable(
        0.2,
        0.0,
        64.0,
        "a node with fewer idle cores than this, or than an operator would take more, has none for another executor",
    )
    rescale_tolerance: float = _tunable(0.1, 0.0, 1.0, "a change of the executors by no more than this share is not made")
    rescale_step_factor: float = _tunable(32.0, 1.1, 1_000.0, "executors are at most multiplied by this in one scaling up")
    rescale_down_factor: float = _tunable(2.0, 1.1, 1_000.0, "executors are at most divided by this in one scaling down")
    rescale_serial_share: float = _tunable(
        0.02, 0.0, 0.5, "share of an operator's work that more executors do not speed up, until it shows its own"
    )
    rescale_effective_share: float = _tunable(
        0.25, 0.0, 1.0, "a scaling up that brings less than this share of what was expected is ineffective"
    )
    rescale_judge_after_s: float = _tunable(120.0, 0.0, 86_400.0, "a change is judged no earlier than this after it")
    rescale_block_s: float = _tunable(86_400.0, 0.0, 2_592_000.0, "what was ineffective is not repeated for this long")
    rescale_retry_s: float = _tunable(1_800.0, 0.0, 604_800.0, "what was rolled back or failed is not tried again for this long")
    # rescale: with what pause; learned from observed pauses as they come
    rescale_small_state_rows: int = _tunable(
        100_000, 0, 1_000_000_000, "state up to this many rows is repartitioned with the query stopped, larger state beside it"
    )
    rescale_kind_margin_s: float = _tunable(
        1.0, 0.0, 3_600.0, "a costlier kind is taken where it shortens the pause by more than this"
    )
    rescale_expected_pause_restart_s: float = _tunable(1.3, 0.0, 3_600.0, "pause of a restart of the query")
    rescale_expected_pause_restart_s_per_million: float = _tunable(1.6, 0.0, 3_600.0, "the same, for each million rows of state")
    rescale_expected_pause_cold_s: float = _tunable(
        10.0, 0.0, 3_600.0, "the same, for executors that are added while the query is stopped: they are cold when it starts"
    )
    rescale_expected_pause_repartition_s: float = _tunable(2.5, 0.0, 3_600.0, "pause of a restart with other buckets")
    rescale_expected_pause_repartition_s_per_million: float = _tunable(
        20.0, 0.0, 3_600.0, "the same, for each million rows of state"
    )
    rescale_expected_pause_executors_s: float = _tunable(
        4.0, 0.0, 3_600.0, "pause of a change of executors under the running query"
    )
    rescale_expected_pause_executors_s_per_million: float = _tunable(
        0.8, 0.0, 3_600.0, "the same, for each million rows of state: buckets that move are loaded anew"
    )
    rescale_expected_pause_handover_s: float = _tunable(1.8, 0.0, 3_600.0, "pause of a rehearsed hand-over")
    rescale_expected_pause_handover_s_per_million: float = _tunable(0.8, 0.0, 3_600.0, "the same, for each million rows of state")
    rescale_expected_pause_shadow_s: float = _tunable(4.5, 0.0, 3_600.0, "pause of a cut-over to a repartitioned shadow")
    # rescale: how long a step of a plan may take
    rescale_validate_timeout_s: float = _tunable(60.0, 1.0, 86_400.0, "to find out whether a plan can begin")
    rescale_order_timeout_s: float = _tunable(60.0, 1.0, 86_400.0, "to write down what a driver is to do")
    rescale_stop_timeout_s: float = _tunable(
        120.0, 1.0, 86_400.0, "for a query to stop at a committed batch, and to be repartitioned"
    )
    rescale_start_timeout_s: float = _tunable(180.0, 1.0, 86_400.0, "for a query to run again")
    rescale_scale_timeout_s: float = _tunable(180.0, 1.0, 86_400.0, "for executors to register, or to be gone")
    rescale_calm_s: float = _tunable(
        45.0, 0.0, 120.0, "for shedding to work off what waits before a second application takes CPU beside it"
    )
    rescale_hold_s: float = _tunable(
        180.0, 0.0, 3_600.0, "from the beginning of a plan, for so long nothing behind what it will change is raised"
    )
    rescale_launch_timeout_s: float = _tunable(300.0, 1.0, 86_400.0, "for a second application to show its first heartbeat")
    rescale_rehearse_timeout_s: float = _tunable(900.0, 1.0, 86_400.0, "for a second application to have rehearsed")
    rescale_repartition_timeout_s: float = _tunable(3_600.0, 1.0, 86_400.0, "for the clone of a state to be repartitioned")
    rescale_catch_up_timeout_s: float = _tunable(1_800.0, 1.0, 86_400.0, "for a shadow to have caught up")
    rescale_take_over_timeout_s: float = _tunable(
        180.0, 1.0, 86_400.0, "for a successor to commit its first batch after the cut-over"
    )
    rescale_verify_timeout_s: float = _tunable(300.0, 1.0, 86_400.0, "for the first batches after a change to be healthy")
    rescale_digest_timeout_s: float = _tunable(1_800.0, 1.0, 86_400.0, "to count and sum up all state before and after")
    # rescale: carrying a plan out
    rescale_interval_s: float = _tunable(30.0, 5.0, 3_600.0, "how often spillway_rescale looks for plans")
    rescale_verify_batches: int = _tunable(3, 1, 1_000, "batches with rows that must be healthy after a change")
    rescale_digest: str = _choice("always", ("always", "buckets", "never"), "which plans have their state compared")

    def __post_init__(self) -> None:
        for tunable in fields(self):
            value = getattr(self, tunable.name)
            if "choices" in tunable.metadata:
                _check_choice(tunable.name, value, tunable.metadata)
            elif "periods" in tunable.metadata:
                _check_periods(tunable.name, value, tunable.metadata)
            else:
                _check(tunable.name, value, tunable.metadata, whole=tunable.type in (int, "int"))
        if self.heartbeat_s * 3 > self.fence_s:
            raise PolicyError(
                f"fence_s is {self.fence_s:g}, but must be at least three heartbeats (heartbeat_s is {self.heartbeat_s:g}): "
                f"at least {self.heartbeat_s * 3:g}"
            )
        for smaller, larger in (
            ("fence_s", "lease_s"),
            ("heartbeat_s", "silent_s"),
            ("silent_s", "give_up_s"),
            ("backoff_first_s", "backoff_most_s"),
            ("batch_rows_min", "batch_rows_first"),
            ("batch_rows_first", "batch_rows_max"),
            ("rescale_calm_s", "rescale_launch_timeout_s"),
            ("rescale_down_utilisation", "rescale_target_utilisation"),
            ("rescale_target_utilisation", "rescale_up_utilisation"),
        ):
            if getattr(self, larger) < getattr(self, smaller):
                raise PolicyError(
                    f"{larger} is {getattr(self, larger):g}, but must be at least {smaller}, which is {getattr(self, smaller):g}"
                )

    @property
    def qod_ahead_s(self) -> tuple[float, float]:
        """How far a measurement may be dated ahead of its storing, least and most: before it by what storing may take, too."""
        return -(self.qod_clock_skew_s + self.qod_settle_s), self.qod_clock_skew_s

    @property
    def qod_request_s(self) -> float:
        """A move that was requested this long ago and not begun is not made: spillway_streams, which begins it, has not run."""
        return max(180.0, 4 * self.streams_interval_s)

    def backoff_s(self, attempts: int) -> float:
        """Pause before the launch that follows `attempts` launches without a healthy run.

        >>> [Policy().backoff_s(n) for n in (0, 1, 2, 3, 50)]
        [0.0, 5.0, 10.0, 20.0, 300.0]
        """
        if attempts <= 0:
            return 0.0
        grown = self.backoff_first_s * self.backoff_factor ** min(attempts - 1, 64)
        return min(grown, self.backoff_most_s)

    def changed(self, values: Mapping[str, Any]) -> Policy:
        """With other values; PolicyError where one is unknown or wrong.

        >>> Policy().changed({"retention_days": 3}).retention_days
        3
        """
        _check_names("the given policy", values)
        return replace(self, **values)

    @classmethod
    def load(cls, path: str | Path | None = None, environ: Mapping[str, str] | None = None) -> Policy:
        """Defaults, then the file, then single variables of the environment."""
        environ = os.environ if environ is None else environ
        file = path or environ.get("SPILLWAY_POLICY") or None
        values = _from_file(Path(file)) if file else {}
        single = {name.removeprefix(VARIABLE).lower(): name for name in environ if name.startswith(VARIABLE)}
        _check_names("the environment", single, written=single)
        for tunable in fields(cls):
            name = f"{VARIABLE}{tunable.name.upper()}"
            if text := environ.get(name):
                values[tunable.name] = _number(name, text) if "low" in tunable.metadata else text
        return cls(**values)


def _check(name: str, value: Any, metadata: Mapping[str, Any], *, whole: bool) -> None:
    low, high = metadata["low"], metadata["high"]
    kind = "a whole number" if whole else "a number"
    allowed = f"must be {kind} from {low:g} to {high:g} ({metadata['meaning']})"
    if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
        raise PolicyError(f"{name} is {value!r}, but {allowed}")
    if not (math.isfinite(value) and low <= value <= high):
        raise PolicyError(f"{name} is {value}, but {allowed}")


def _check_choice(name: str, value: Any, metadata: Mapping[str, Any]) -> None:
    if value not in metadata["choices"]:
        raise PolicyError(f"{name} is {value!r}, but must be {' or '.join(metadata['choices'])} ({metadata['meaning']})")


def _check_periods(name: str, value: Any, metadata: Mapping[str, Any]) -> None:
    meaning = f"must be text ({metadata['meaning']})"
    if not isinstance(value, str):
        raise PolicyError(f"{name} is {value!r}, but {meaning}")
    try:
        periods.parse(value)
    except ValueError as error:
        raise PolicyError(f"{name} is {value!r}, but {error} ({metadata['meaning']})") from None


def _number(name: str, text: str) -> float | int:
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        raise PolicyError(f"{name} is {text!r}, but must be a number") from None


def _from_file(path: Path) -> dict[str, Any]:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        raw = YAML(typ="safe").load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise PolicyError(f"the policy file {path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    except YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark else str(path)
        raise PolicyError(f"the policy file {where} is not valid YAML: {getattr(error, 'problem', None) or error}") from error
    if raw is None:
        return {}
    if not isinstance(raw, dict):
        raise PolicyError(f"the policy file {path} must be a mapping of fields to values")
    _check_names(f"the policy file {path}", raw)
    return dict(raw)


def _check_names(where: str, names: Iterable[Any], written: Mapping[str, str] | None = None) -> None:
    """`written`: how a name is spelt there."""
    known = [tunable.name for tunable in fields(Policy)]
    for name in names:
        if name not in known:
            spelt = name if written is None else written[name]
            close = get_close_matches(str(name), known, n=1)
            meant = close[0] if close and written is None else f"{VARIABLE}{close[0].upper()}" if close else ""
            hint = f"; did you mean {meant}?" if meant else f"; known are {', '.join(known)}"
            raise PolicyError(f"{where} has the unknown field {spelt}{hint}")
