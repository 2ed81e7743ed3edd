"""The keep of an edge: what was set, and what is in force when the setting has grown old."""

from __future__ import annotations

from dataclasses import dataclass

from spillway.model.topology import Silent

SOURCES = ("default", "setting", "held", "open")
"""Where the keep in force comes from: never set; set and alive; expired and held; expired and opened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    keep: float
    decision_id: int
    remaining_s: float | None
    """Seconds of its time to live that are left; None: it does not expire."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effective:
    keep: float = 1.0
    decision_id: int | None = None
    source: str = "default"


def in_force(setting: Setting | None, when_silent: Silent, *, age_s: float) -> Effective:
    """What an edge keeps `age_s` seconds after `setting` was read.

    >>> in_force(Setting(keep=0.5, decision_id=7, remaining_s=10.0), Silent.OPEN, age_s=3.0)
    Effective(keep=0.5, decision_id=7, source='setting')
    >>> in_force(Setting(keep=0.5, decision_id=7, remaining_s=10.0), Silent.OPEN, age_s=10.0)
    Effective(keep=1.0, decision_id=7, source='open')
    >>> in_force(Setting(keep=0.5, decision_id=7, remaining_s=10.0), Silent.HOLD, age_s=99.0)
    Effective(keep=0.5, decision_id=7, source='held')
    """
    if setting is None:
        return Effective()
    if setting.remaining_s is None or age_s < setting.remaining_s:
        return Effective(keep=setting.keep, decision_id=setting.decision_id, source="setting")
    if when_silent is Silent.OPEN:
        return Effective(keep=1.0, decision_id=setting.decision_id, source="open")
    return Effective(keep=setting.keep, decision_id=setting.decision_id, source="held")
