"""Fixtures of the tests that need a Postgres but no other service."""

from tests.support.cycles import begin
from tests.support.database import control, database, empty, migrated, server

__all__ = ["begin", "control", "database", "empty", "migrated", "server"]
