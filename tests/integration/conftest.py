"""Fixtures that several of these tests need."""

from tests.support.cycles import begin
from tests.support.database import control, database, empty, migrated, server
from tests.support.evaluations import evaluate
from tests.support.live import agent
from tests.support.plans import a_line, line

__all__ = ["a_line", "agent", "begin", "control", "database", "empty", "evaluate", "line", "migrated", "server"]
