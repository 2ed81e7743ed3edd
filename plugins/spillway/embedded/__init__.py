"""Postgres, Kafka, Spark and Airflow on this machine, on loopback, under one folder."""

from spillway.embedded.errors import EmbeddedError
from spillway.embedded.stack import Stack

__all__ = ["EmbeddedError", "Stack"]
