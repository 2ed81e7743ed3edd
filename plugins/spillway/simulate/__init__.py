"""The twin: pipelines, nodes and queues as arrays, in place of Spark and Kafka.

It yields the observations the live cycle sees and takes the decisions the live cycle takes, through the same function.

| file | what is there |
|---|---|
| world.py | what is simulated: nodes, operators with their costs, edges, rates |
| scenario.py | a scenario file to a world |
| sharing.py | the CPU of a node, shared by the instances on it |
| batches.py | the bound of a batch, as the drivers follow it |
| engine.py | the state of a world, step by step |
| learning.py | the cost model of an operator, from its own batches |
| watch.py | a closed window of the engine as an `Observation` |
| run.py | observe, decide, publish: cycle after cycle |
| verdict.py | what a run kept of its promises |
| recording.py | one run as a file: what a real run is compared by |
| against.py | the twin's error against a recorded run |
"""
