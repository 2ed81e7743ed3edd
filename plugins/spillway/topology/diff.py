"""What changes between two versions of a pipeline, and which applications must restart for it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from spillway.model.topology import Pipeline

_RESTARTS_ALL = ("trigger_s", "batch_target_s", "lineage")
_CONTROL_ONLY = ("query", "parallelism")
"""Fields of an operator that only the controllers read."""
_PRODUCER_TOO = ("topic", "partitions", "delivery")


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    subject: str
    """`pipeline taxi`, `operator bill`, `edge union:bill`, `application front`."""
    field: str
    """Empty when the whole subject is added or removed."""
    old: Any
    new: Any
    restarts: tuple[str, ...] = ()
    """Applications that must restart before the change works."""

    def __str__(self) -> str:
        if not self.field:
            what = f"{'added' if self.old is None else 'removed'}"
        else:
            what = f"{self.field}: {_shown(self.old)} → {_shown(self.new)}"
        restart = f" (restarts {', '.join(self.restarts)})" if self.restarts else ""
        return f"{self.subject}: {what}{restart}"

    def as_dict(self) -> dict[str, Any]:
        return {
            "subject": self.subject,
            "field": self.field,
            "old": _plain(self.old),
            "new": _plain(self.new),
            "restarts": list(self.restarts),
        }


def diff(old: Pipeline | None, new: Pipeline) -> list[Change]:
    """All changes from the version in force to the new one; empty when they are equal."""
    if old is None:
        return [
            Change(subject=f"pipeline {new.name}", field="", old=None, new=new.name),
            *_members("operator", {}, {o.name: o for o in new.operators}, old, new),
            *_members("edge", {}, {e.name: e for e in new.edges}, old, new),
            *_members("application", {}, {a.name: a for a in new.applications}, old, new),
        ]
    everyone = _running_in(old, new, {a.name for a in new.applications})
    changes = [
        Change(
            subject=f"pipeline {new.name}",
            field=field,
            old=getattr(old, field),
            new=getattr(new, field),
            restarts=everyone if field in _RESTARTS_ALL else (),
        )
        for field in ("name", "description", "trigger_s", "latency_constraint_s", "batch_target_s", "lineage")
        if getattr(old, field) != getattr(new, field)
    ]
    changes += _members("operator", {o.name: o for o in old.operators}, {o.name: o for o in new.operators}, old, new)
    changes += _members("edge", {e.name: e for e in old.edges}, {e.name: e for e in new.edges}, old, new)
    changes += _members("application", {a.name: a for a in old.applications}, {a.name: a for a in new.applications}, old, new)
    return changes


def restarts(changes: list[Change]) -> frozenset[str]:
    return frozenset(name for change in changes for name in change.restarts)


def _members(kind: str, before: dict[str, Any], after: dict[str, Any], old: Pipeline | None, new: Pipeline) -> list[Change]:
    changes = []
    for name in [*before, *(n for n in after if n not in before)]:
        subject = f"{kind} {name}"
        was, will = before.get(name), after.get(name)
        if was is None or will is None:
            changes.append(
                Change(subject=subject, field="", old=was, new=will, restarts=_restarts(kind, "", was, will, old, new))
            )
            continue
        for field in (f.name for f in fields(was)):
            a, b = getattr(was, field), getattr(will, field)
            if a != b:
                changes.append(
                    Change(subject=subject, field=field, old=a, new=b, restarts=_restarts(kind, field, was, will, old, new))
                )
    if set(before) == set(after) and list(before) != list(after):
        renumbered = {e.consumer for e in after.values() if _inputs(before, e) != _inputs(after, e)} if kind == "edge" else set()
        changes.append(
            Change(
                subject=f"pipeline {new.name}",
                field=f"order of {kind}s",
                old=tuple(before),
                new=tuple(after),
                restarts=_running_in(old, new, _applications_of(renumbered, old, new)),
            )
        )
    return changes


def _inputs(edges: dict[str, Any], edge: Any) -> list[str]:
    """Names of all edges with the consumer of `edge`, in their order."""
    return [name for name, other in edges.items() if other.consumer == edge.consumer]


def _restarts(kind: str, field: str, was: Any, will: Any, old: Pipeline | None, new: Pipeline) -> tuple[str, ...]:
    if old is None:
        return ()
    if kind == "application":
        return _running_in(old, new, {(will or was).name}) if will is not None and was is not None else ()
    operators: set[str]
    if kind == "operator":
        operators = set() if field in _CONTROL_ONLY else {(will or was).name}
        if field == "weight":
            operators |= {o.name for o in new.operators if old.carries_weight(o.name) != new.carries_weight(o.name)}
    else:
        edge = will or was
        operators = {edge.consumer}
        if edge.producer and (not field or field in _PRODUCER_TOO):
            operators.add(edge.producer)
    return _running_in(old, new, _applications_of(operators, old, new))


def _applications_of(operators: set[str], old: Pipeline | None, new: Pipeline) -> set[str]:
    return {a.name for p in (old, new) if p for a in p.applications if operators & set(a.operators)}


def _running_in(old: Pipeline | None, new: Pipeline, names: set[str]) -> tuple[str, ...]:
    """Those of the applications that exist before and after: a new one starts and a removed one has stopped, neither restarts."""
    before = {a.name for a in old.applications} if old else set()
    return tuple(a.name for a in new.applications if a.name in names & before)


def _shown(value: Any) -> str:
    plain = _plain(value)
    if isinstance(plain, dict):
        return "{" + ", ".join(f"{k}: {_shown(v)}" for k, v in plain.items() if v not in (None, [], {})) + "}"
    if isinstance(plain, list):
        return "[" + ", ".join(_shown(v) for v in plain) + "]"
    if isinstance(plain, bool):
        return str(plain).lower()
    return "none" if plain is None else str(plain)


def _plain(value: Any) -> Any:
    if hasattr(value, "__dataclass_fields__"):
        return {f.name: _plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, tuple | list):
        return [_plain(v) for v in value]
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    return str(value) if isinstance(value, str) else value
