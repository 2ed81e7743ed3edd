select application, executors, node, generation, desired from spillway.application where pipeline = %(pipeline)s
