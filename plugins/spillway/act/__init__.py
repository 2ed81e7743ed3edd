"""Decisions carried out: against the store, and through a launcher against Spark."""
