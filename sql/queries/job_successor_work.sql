-- What a driver is to rehearse.
select n.executors, n.operator, n.checkpoint_to, n.buckets_to
from spillway.successor n
where n.pipeline = %(pipeline)s and n.application = %(application)s and n.plan = %(plan)s and n.generation = %(generation)s
