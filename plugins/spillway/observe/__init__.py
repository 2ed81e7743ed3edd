"""The outside world, measured.

| file | what it reads |
|---|---|
| processes.py | which processes are drivers and executors of which application, and their CPU and memory |
| node.py | CPU, load, memory and network of a node |
| topics.py | end offsets of the topics that pipelines read |
| buffer.py | rows on their way to Postgres: bounded, drops counted |
| agent.py | the program beside the workers that does all of it every few seconds |
"""
