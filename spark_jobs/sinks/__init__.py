"""Sinks that write each row of a micro-batch exactly once, whatever is killed."""
