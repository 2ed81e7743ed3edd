"""Carrying out plans to rescale an operator (algorithm 3 of Flink-ER), step by recorded step.

| file | what is there |
|---|---|
| carry.py | `advance`: one pass over the open plans |
| steps.py | what each step looks at and does |
| successor.py | the steps of a driver that rehearses and takes over |
| digest.py, offline.py | is the state the same? the jobs that count it |
| undo.py | the way back |
| facts.py | what a step sees and says |
| offsets.py, observed.py | pure: offsets in a row; how long a change was felt |
"""
