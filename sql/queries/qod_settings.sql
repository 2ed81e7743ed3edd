-- The last setting of edges, as it was at a moment; an edge goes with its pipeline at the same place of both lists.
select h.pipeline, h.edge, h.keep, h.decision_id, h.issued_at, h.ttl_s
from unnest(%(pipelines)s::text[], %(edges)s::text[]) as wanted (pipeline, edge)
cross join lateral (
    select s.*
    from spillway.setting_history s
    where s.pipeline = wanted.pipeline and s.edge = wanted.edge and s.issued_at <= %(end)s
    order by s.issued_at desc, s.decision_id desc
    limit 1
) h
