"""Postgres: what should be, what is, and what was measured. The SQL itself lives in sql/."""

from spillway.store.connection import connect, session, translate
from spillway.store.errors import NotConfigured, Refused, StoreError, Unavailable

__all__ = ["NotConfigured", "Refused", "StoreError", "Unavailable", "connect", "session", "translate"]
