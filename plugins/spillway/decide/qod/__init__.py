"""Quality of Data: how much of its input every edge keeps, and which instances move.

| file | question it answers |
|---|---|
| cycle.py | `decide`: the whole decision, with reasons |
| shed.py | the policy: who gets CPU first, how equals share, who is held back |
| plan.py | one cycle: floors, moves, what is left by priority |
| paper.py | the same cycle, word for word as the papers have it |
| propagate.py | what operators owe to the queries below them; keep of every edge (equations 1, 2, 5, 14, 15) |
| accuracy.py | how much of its demand an operator manages (3, 4), with the backlog |
| cpu.py | what an accuracy costs (6, 8), proportional or affine |
| learn.py | the affine cost of an operator, from its own batches |
| fill.py | sharing CPU until it is used up (algorithm 3, mended) |
| floors.py | do floors fit, after which moves; how many cores are missing |
| reschedule.py, schedule.py | what moves (algorithm 2), where to (thesis algorithm 3.1) |
| damping.py | against flapping |
| flight.py | rows on the way, which meet keeps of two decisions |
| hold.py | when not to decide |
| words.py | reasons |
| world.py, uses.py | the observation as columns, who uses what |
| examples.py | small named worlds |
"""

from spillway.decide.qod.cycle import decide
from spillway.decide.qod.learn import learn

__all__ = ["decide", "learn"]
