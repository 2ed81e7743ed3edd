"""Shared by tests and benches that run real pipelines."""
