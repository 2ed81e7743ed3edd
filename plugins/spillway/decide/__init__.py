"""Decisions: values in, value out. No store, no client, no clock.

| file | question it answers |
|---|---|
| streams.py | which Spark applications to start, restart, stop, kill or adopt, and why |
"""
