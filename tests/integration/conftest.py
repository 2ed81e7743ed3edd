"""Fixtures of the tests that need a Postgres but no other service."""

from tests.support.database import database, empty, migrated, server

__all__ = ["database", "empty", "migrated", "server"]
