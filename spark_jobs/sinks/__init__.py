"""Sinks that write each row of a micro-batch exactly once, whatever is killed."""

STALE = (
    "writer {writer} is asked for epoch {epoch}, but epoch {marker} is written already: the checkpoint is older than its output; "
    "stop the pipeline and run `spillway reset PIPELINE OPERATOR`"
)
