"""Gates: named business rules on what was observed and on what was decided. Great Expectations is imported by `run` alone."""

from spillway.gates.verdict import Failure, Verdict

__all__ = ["Failure", "Verdict"]
