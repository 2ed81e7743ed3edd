-- When a query of the operator last failed, and why its driver refused to start it again as it was told.
select max(at) filter (where kind = 'query_failed') as failed_at,
       (array_agg(text order by id desc) filter (where kind = 'restart_refused'))[1] as refused
from spillway.event
where pipeline = %(pipeline)s and subject = %(operator)s and kind in ('query_failed', 'restart_refused') and actor = 'driver' and at >= %(since)s
