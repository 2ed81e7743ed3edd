"""Capacity and bottleneck: how much a pipeline could carry, and which operator it is that says so.

| file | question it answers |
|---|---|
| detect.py | `detect`: the whole finding, with reasons |
| study.py | which source is studied |
| initial.py | what an edge could carry by its network (equations 9, 10) |
| useful.py | what an operator manages by its own batches or instances, and its skew |
| feedback.py | what latency makes of a capacity (algorithm 1, equations 12 to 14) |
| estimate.py | which of these has the say |
| shares.py | how the rows of a source spread, with the other sources held |
| network.py | the pipeline in its physical form |
| program.py | the largest rate as a linear program, its prices as a cut |
| plain.py | the same by max-flow where nothing forks: by the paper's paths, by NetworkX |
| improving.py | the improving network and optimisation paths (2, 3) |
| partition.py | partitions, the minimum one and the potential ones (4, 5, 11) |
| largest.py | all of that together, compared |
| checks.py | what every answer must prove |
| judge.py | bottleneck, dispatch, or all is well (algorithm 2) |
| drain.py | the drain plan |
| words.py | reasons |
| examples.py | small named worlds |
"""

from spillway.decide.capacity.checks import AnswerBroken
from spillway.decide.capacity.detect import detect
from spillway.decide.capacity.plain import by_library, by_paths
from spillway.decide.capacity.program import by_program

__all__ = ["AnswerBroken", "by_library", "by_paths", "by_program", "detect"]
