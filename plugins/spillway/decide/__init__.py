"""Decisions: values in, value out. No store, no client, no clock.

| file | question it answers |
|---|---|
| streams.py | which Spark applications to start, restart, stop, kill or adopt, and why |
| qod/ | how much of its input every edge keeps, and which instances move, and why |
| capacity/ | how much a pipeline could carry, and which operator limits it, and why |
| rescale/ | how many executors and buckets operators get, and how the change is made |
"""
