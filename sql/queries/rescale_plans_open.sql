-- Plans that are under way, the oldest first.
select id, decision, pipeline, application, operator, kind, state, step, executors_from, executors_to, buckets_from, buckets_to, node_from,
       node_to, checkpoint_from, checkpoint_to, generation_from, generation_to, incarnation_to, passes, expected, observed, reason, detail,
       requested_by, requested_at, changed_at, ended_at
from spillway.rescale_plan where state in ('planned', 'running', 'rolling_back')
order by id
