-- The last setting of every edge, as it was at a moment.
select distinct on (pipeline, edge) pipeline, edge, keep, decision_id, issued_at, ttl_s
from spillway.setting_history
where pipeline = any(%(pipelines)s) and issued_at <= %(end)s
order by pipeline, edge, issued_at desc, decision_id desc
