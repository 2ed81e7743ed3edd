"""Who may write what was decided, how long it stays, and moves from request to end."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from psycopg2 import errors
from spillway.act.moves import advance, request_move
from spillway.model.qod import Observation
from spillway.model.window import Interval
from spillway.observe.window import UNMOVED_S, read_window
from spillway.observe.world import observation
from spillway.policy import Policy
from spillway.store import pipelines
from spillway.store.decisions import Run, save_decision, save_observation, save_policy

from tests.support.database import Database
from tests.support.recorded import YAML, declared
from tests.support.windows import pipeline, window

pytestmark = pytest.mark.integration
POLICY = Policy()
RUN = Run(policy=POLICY)

FORBIDDEN = [
    ("job", "insert into spillway.policy_version values ('x', '{}')"),
    ("job", "update spillway.decision set status = 'published'"),
    (
        "job",
        "insert into spillway.gate_result (decision, gate, suite, rule, success, evidence) values (1, 'x', 'x', 'x', true, '{}')",
    ),
    ("job", "update spillway.reschedule set state = 'done'"),
    ("job", "update spillway.pipeline set mode = 'apply'"),
    ("read", "update spillway.decision set status = 'published'"),
    ("read", "insert into spillway.pipeline_history values ('p', now(), 1, 'running', 'apply')"),
    ("control", "delete from spillway.decision"),
    ("control", "delete from spillway.observation"),
    ("control", "insert into spillway.pipeline_history values ('p', now(), 1, 'running', 'apply')"),
    ("control", "update spillway.policy_version set body = '{}'"),
    ("control", "update spillway.gate_result set success = true"),
]


@pytest.mark.parametrize(("role", "statement"), FORBIDDEN)
def test_role_may_not(migrated: Database, role: str, statement: str) -> None:
    with pytest.raises(errors.InsufficientPrivilege):
        migrated.sql(role, statement)


@pytest.fixture
def conn(database: Database) -> Iterator[Any]:
    connection = database.connect("control")
    pipelines.apply(connection, declared("rec"), YAML.format(name="rec"), "test")
    pipelines.set_desired(connection, "rec", "running", "test")
    yield connection
    connection.close()


def test_what_should_be_is_remembered_with_its_time(database: Database, conn: Any) -> None:
    pipelines.set_mode(conn, "rec", "apply", "test")
    assert not pipelines.set_mode(conn, "rec", "apply", "test")
    pipelines.set_desired(conn, "rec", "stopped", "test")
    database.sql("control", "delete from spillway.pipeline where pipeline = 'rec'")
    found = database.sql("read", "select version, desired, mode from spillway.pipeline_history order by at")
    assert found == [
        (1, "stopped", "advise"),
        (1, "running", "advise"),
        (1, "running", "apply"),
        (1, "stopped", "apply"),
        (1, "removed", "apply"),
    ]


def test_a_new_mode_does_not_count_as_a_new_wish_to_run_or_stop(database: Database, conn: Any) -> None:
    before = database.sql("read", "select changed_at from spillway.pipeline")
    pipelines.set_mode(conn, "rec", "off", "test")
    assert database.sql("read", "select changed_at from spillway.pipeline") == before


def decide_at(conn: Any, end: datetime) -> int:
    interval = Interval(start=end - timedelta(seconds=15), end=end)
    save_policy(conn, RUN)
    seen = save_observation(conn, RUN, interval, "apply", ["rec"], "{}")
    saved = save_decision(conn, RUN, interval, pipeline="rec", mode="apply", version=1, observation=seen, status="decided")
    conn.commit()
    assert saved is not None
    return saved


def test_housekeeping_drops_old_decisions_and_keeps_what_was_in_force(database: Database, conn: Any) -> None:
    now = datetime.now(UTC)
    old, young = decide_at(conn, now - timedelta(days=9)), decide_at(conn, now)
    pipelines.set_mode(conn, "rec", "apply", "test")
    pipelines.set_mode(conn, "rec", "off", "test")
    days = "update spillway.pipeline_history set at = at - interval '{} days' where mode = '{}' and desired = 'running'"
    for ago, mode in ((12, "advise"), (10, "apply"), (1, "off")):
        database.sql("owner", days.format(ago, mode))
    database.sql("owner", "update spillway.pipeline_history set at = at - interval '20 days' where desired = 'stopped'")
    database.sql("control", "select spillway.drop_partitions(%s)", (now - timedelta(days=7)).date())
    assert database.sql("read", "select id from spillway.decision") == [(young,)]
    assert old != young
    assert database.sql("read", "select count(*) from spillway.observation") == [(1,)]
    modes = database.sql("read", "select mode from spillway.pipeline_history order by at")
    assert modes == [("apply",), ("off",)], "on the oldest day that is kept it was applied"


# ---- moves ----

NOW = datetime.now(UTC)


@pytest.fixture(autouse=True)
def at_its_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server dates requests itself, and a session may be minutes old when a test begins."""
    monkeypatch.setitem(globals(), "NOW", datetime.now(UTC))


def seen(room: float) -> Observation:
    """The application `behind` of rec with 60 % of a core on n2, where there is much room, and so much room on n1."""
    from dataclasses import replace

    found = window(pipeline("rec"), cpu=60.0)
    nodes = tuple(
        replace(n, cores=1, cpu=100.0 - room) if n.node == "n1" else replace(n, cores=2, cpu=70.0) for n in found.nodes
    )  # fmt: skip
    return observation(replace(found, nodes=nodes), ["rec"], {}, {}, Policy())


@pytest.fixture
def applied(database: Database, conn: Any) -> Any:
    """The pipeline with mode apply, its application `behind` running on n2."""
    pipelines.set_mode(conn, "rec", "apply", "test")
    launch(database, 3, "n2")
    return conn


HEAVY = {"operator": "heavy", "from": "n2", "to": "n1", "reason": "n2 is full"}
LIGHT = {"operator": "light", "from": "n1", "to": "n2", "reason": "n1 is full"}


def move_to(conn: Any, room: float = 80.0, after_s: float = 0.0, move: dict[str, str] = HEAVY) -> list[str]:
    decision, now = decide_at(conn, NOW), NOW + timedelta(seconds=after_s)
    with conn.cursor() as cursor:
        cursor.execute("update spillway.observation set body = %s", (seen(room).to_json(),))
    said = request_move(conn, "rec", decision, [move], POLICY, now)
    conn.commit()
    return said


def step(conn: Any, after_s: float = 0.0) -> str | None:
    said = advance(conn, POLICY, NOW + timedelta(seconds=after_s))
    conn.commit()
    return said


def launch(database: Database, generation: int, node: str, state: str = "running") -> None:
    database.sql(
        "control", "update spillway.application set generation = %s, launched_node = %s where application = 'behind'",
        generation, node,
    )  # fmt: skip
    database.sql(
        "control",
        "insert into spillway.heartbeat (pipeline, application, generation, holder, state) values ('rec', 'behind', %s, 'x', %s)"
        " on conflict (pipeline, application, generation) do update set state = excluded.state",
        generation, state,
    )  # fmt: skip


def moved(database: Database) -> tuple[Any, ...]:
    [found] = database.sql(
        "read", "select r.state, a.node, r.generation from spillway.reschedule r"
        " join spillway.application a using (pipeline, application)"
        " order by r.id desc limit 1",
    )  # fmt: skip
    return found


def test_a_move_goes_from_request_to_done(database: Database, applied: Any) -> None:
    assert move_to(applied) == ["rec: behind should move from n2 to n1: n2 is full"]
    assert moved(database) == ("requested", "n2", None)
    assert step(applied) == "rec/behind moves from n2 to n1"
    assert moved(database) == ("moving", "n1", None)
    [(again,)] = database.sql(
        "read", "select generation > 0 and launched_node is distinct from node from spillway.application"
        " where application = 'behind'",
    )  # fmt: skip
    assert again, "whoever converges launches it anew"
    assert step(applied, 10) is None
    launch(database, 4, "n1")
    assert step(applied, 20) == "rec/behind runs on n1 and warms up"
    assert moved(database) == ("warming", "n1", 4)
    assert step(applied, 79) is None
    assert step(applied, 81) == "rec/behind has moved to n1"
    assert moved(database) == ("done", "n1", 4)
    assert step(applied, 90) is None
    kinds = [k for (k,) in database.sql("read", "select kind from spillway.event where subject = 'behind' order by id")]
    assert kinds == ["move", "moving", "warming", "moved"]


def test_one_at_a_time(database: Database, applied: Any) -> None:
    move_to(applied)
    assert move_to(applied) == ["rec: a move waits for that of rec/behind"]
    with pytest.raises(errors.UniqueViolation):
        database.sql(
            "control", "insert into spillway.reschedule (pipeline, application, source, target, reason)"
            " values ('rec', 'ahead', 'a', 'b', '')",
        )  # fmt: skip


def test_who_does_not_come_up_goes_back_and_is_not_sent_again_soon(database: Database, applied: Any) -> None:
    move_to(applied)
    step(applied)
    launch(database, 4, "n1", "starting")
    assert step(applied, 149) is None
    assert step(applied, 151) == "rec/behind did not come up on n1 within 151 s and goes back to the node n2"
    assert moved(database)[:2] == ("failed", "n2")
    assert move_to(applied) == ["rec: a move of behind to n1 failed lately: it is not tried again yet"]


def test_a_move_without_room_for_the_whole_application_is_not_requested(database: Database, applied: Any) -> None:
    assert move_to(applied, room=40.0) == [
        "rec: behind would move to n1 as a whole, with 60 % of a core where 40 % is left: it stays"
    ]
    assert database.sql("read", "select count(*) from spillway.reschedule") == [(0,)]


STOPPED = "update spillway.application set desired = 'stopped' where application = 'behind'"
ELSEWHERE = "update spillway.application set node = 'n3' where application = 'behind'"
ANYWHERE = "update spillway.application set node = null where application = 'behind'"


@pytest.mark.parametrize(
    ("change", "words", "node"),
    [
        (STOPPED, "rec/behind was stopped meanwhile and goes back to the node n2", "n2"),
        (ELSEWHERE, "rec/behind was given the node n3 meanwhile", "n3"),
        (ANYWHERE, "rec/behind was given any node meanwhile", None),
    ],
)
def test_a_person_wins_over_a_move(database: Database, applied: Any, change: str, words: str, node: str | None) -> None:
    move_to(applied)
    step(applied)
    database.sql("control", change)
    assert step(applied, 5) == words
    assert moved(database)[:2] == ("failed", node)


@pytest.mark.parametrize(
    ("change", "words", "node"),
    [
        (STOPPED, "rec/behind was stopped meanwhile", "n2"),
        (ELSEWHERE, "rec/behind was given the node n3 meanwhile", "n3"),
        (ANYWHERE, "rec/behind was given any node meanwhile", None),
        ("update spillway.pipeline set mode = 'advise'", "rec/behind stays: the mode of rec is advise meanwhile", "n2"),
    ],
)
def test_a_request_is_begun_only_if_all_is_as_it_was(
    database: Database, applied: Any, change: str, words: str, node: str | None
) -> None:
    move_to(applied)
    database.sql("control", change)
    assert step(applied, 5) == words
    assert moved(database) == ("failed", node, None)
    kinds = [k for (k,) in database.sql("read", "select kind from spillway.event where subject = 'behind' order by id")]
    assert kinds == ["move", "move_failed"]


WAIT_S = POLICY.qod_request_s
NOBODY = f"rec/behind stays: nobody began its move to n1 within {WAIT_S:.0f} s, is spillway_streams paused?"


def test_a_request_that_nobody_begins_in_time_is_not_begun_later(database: Database, applied: Any) -> None:
    move_to(applied)
    assert step(applied, WAIT_S + 60) == NOBODY
    assert moved(database) == ("failed", "n2", None)


def test_a_request_that_nobody_begins_holds_up_no_other_for_long(database: Database, applied: Any) -> None:
    move_to(applied)
    assert move_to(applied, after_s=WAIT_S - 60, move=LIGHT) == ["rec: a move waits for that of rec/behind"]
    assert move_to(applied, after_s=WAIT_S + 60, move=LIGHT) == ["rec: ahead should move from n1 to n2: n1 is full"]
    found = database.sql("read", "select application, state, detail from spillway.reschedule order by id")
    assert found == [("behind", "failed", NOBODY), ("ahead", "requested", "")]


def test_a_request_that_nobody_began_is_not_made_again_at_once(database: Database, applied: Any) -> None:
    move_to(applied)
    assert move_to(applied, after_s=WAIT_S + 60) == ["rec: a move of behind to n1 failed lately: it is not tried again yet"]
    assert moved(database) == ("failed", "n2", None)


def test_an_application_that_any_node_may_run_is_not_pinned_by_a_move_that_failed(database: Database, applied: Any) -> None:
    database.sql("control", ANYWHERE)
    move_to(applied)
    step(applied)
    assert moved(database)[:2] == ("moving", "n1")
    words = "rec/behind did not come up on n1 within 151 s and goes back to any node"
    assert step(applied, 151) == words
    assert moved(database)[:2] == ("failed", None)


def unmoved_at(conn: Any, end: datetime) -> list[tuple[str, str]]:
    return sorted(read_window(conn, Interval(start=end - timedelta(seconds=15), end=end), POLICY).unmoved)


def test_nothing_counts_on_a_request_that_nobody_begins(database: Database, applied: Any) -> None:
    """Neither while it is open nor afterwards; and a replay of the time in between sees the same."""
    database.sql("owner", "update spillway.pipeline_history set at = at - interval '1 hour'")
    move_to(applied)
    [(asked,)] = database.sql("read", "select requested_at from spillway.reschedule")
    after = [asked + timedelta(seconds=s) for s in (1.0, WAIT_S - 1, WAIT_S + 1, 2 * WAIT_S)]
    seen_then = [unmoved_at(applied, end) for end in after]
    assert seen_then == [[], [], [("rec", "behind")], [("rec", "behind")]]
    step(applied, 3 * WAIT_S)
    failed_at = asked + timedelta(seconds=3 * WAIT_S)
    database.sql("owner", "update spillway.reschedule set changed_at = %s", failed_at)
    assert [unmoved_at(applied, end) for end in after] == seen_then
    assert unmoved_at(applied, failed_at + timedelta(seconds=UNMOVED_S - 1)) == [("rec", "behind")]
    assert unmoved_at(applied, failed_at + timedelta(seconds=UNMOVED_S + 1)) == []


def test_a_move_that_was_begun_in_time_is_counted_on(database: Database, applied: Any) -> None:
    database.sql("owner", "update spillway.pipeline_history set at = at - interval '1 hour'")
    move_to(applied)
    step(applied)
    [(asked,)] = database.sql("read", "select requested_at from spillway.reschedule")
    assert unmoved_at(applied, asked + timedelta(seconds=WAIT_S + 1)) == []
