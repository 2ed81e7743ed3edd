-- The operator goes on from the checkpoint that its shadow made.
update spillway.operator_state s set checkpoint = p.checkpoint_to, buckets = p.buckets_to, changed_at = %(now)s
from spillway.rescale_plan p
where p.id = %(plan)s and s.pipeline = p.pipeline and s.operator = p.operator and s.checkpoint = p.checkpoint_from
