"""Whoever carries out a plan is killed before each of its writes in turn; the next pass goes on, and the plan ends well."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from spillway.store import rescale

from tests.support.database import Database
from tests.support.dying import Dying, Killed
from tests.support.plans import AFTER, BEFORE, WANTED
from tests.support.rescaling import Line

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]


@pytest.fixture(autouse=True)
def gates_are_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """What they say is another test; here they would be asked a thousand times."""
    monkeypatch.setattr("spillway.gates.plans.check_plan", lambda pipeline, **tables: (1, ()))


def carried(line: Line, dying: Dying, *, give_up_at: str | None = None, passes: int = 60) -> rescale.Plan:
    """Passes on a connection that may die, and on another one afterwards."""
    conn = dying.connect()
    for _ in range(passes):
        plan = line.plan()
        if not plan.open:
            break
        if plan.step == "digest" and plan.state == "running":
            line.digest()
        if plan.step == give_up_at and plan.state == "running":
            rescale.cancel(line.conn, plan.id, "eve")
        try:
            line.advance(conn)
        except Killed:
            conn = dying.connect()
        line.tick()
    conn.close()
    return line.plan()


def every_write(migrated: Database, **course: Any) -> Iterator[tuple[Line, rescale.Plan]]:
    """The same plan again and again, killed one write later each time."""
    wanted = WANTED[course.pop("kind")]
    at, most = 0, 1
    while at <= most:
        line, dying = Line(migrated), Dying(migrated.dsn("control"), at or None)
        line.ask(**wanted)
        plan = carried(line, dying, **course)
        if at == 0:
            most = dying.count
        yield line, plan
        line.close()
        at += 1
    assert most > 20, "each step is several writes"


@pytest.mark.parametrize("kind", WANTED)
def test_a_plan_survives_the_death_of_whoever_carries_it_out(migrated: Database, kind: str) -> None:
    for line, done in every_write(migrated, kind=kind):
        assert (done.state, {s.state for s in done.steps}) == ("done", {"done"}), done
        assert (line.application(), line.state()) == AFTER[kind]
        assert {s.attempts for s in done.steps} == {1}
        assert line.events().count("rescaled") == 1
        assert len(line.specs) == (2 if kind in ("handover", "shadow") else 1), "nobody was launched twice"
        assert sum(d.over is None for d in line.drivers) == 1


@pytest.mark.parametrize(("kind", "step"), [("handover", "rehearsed"), ("shadow", "caught_up"), ("executors", "verify")])
def test_the_way_back_survives_it_too(migrated: Database, kind: str, step: str) -> None:
    for line, back in every_write(migrated, kind=kind, give_up_at=step):
        assert back.state == "rolled_back", back
        assert (line.application(), line.state()[:2]) == BEFORE
        assert line.events().count("rescale_failed") == 1
        assert sum(d.over is None for d in line.drivers) == 1


@pytest.mark.parametrize("when", ["die_before", "die_after"])
def test_a_launch_whose_launcher_dies_is_found_or_made_again_but_never_twice(migrated: Database, when: str) -> None:
    line = Line(migrated)
    plan = line.ask(**WANTED["handover"])

    def die() -> None:
        setattr(line.cluster, when, lambda: None)
        raise Killed(when)

    setattr(line.cluster, when, die)
    line.advance()
    with pytest.raises(Killed):
        line.advance()
    line.conn.rollback()
    [(handle,)] = line.sql("select handle from spillway.successor where plan = %s", plan.id)
    assert handle is None
    line.sql("select pg_advisory_unlock_all()")
    line.conn.close()
    line.conn = migrated.connect("control")
    assert line.carry().state == "done"
    assert len(line.specs) == 2
    line.close()
