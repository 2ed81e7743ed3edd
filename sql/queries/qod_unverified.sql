-- Published decisions whose keeps were in force during a whole window and which nobody has compared yet, the newest of each pipeline
-- first; and whether a later one has changed a keep before that window ended.
select d.id, d.pipeline, d.output, d.expected, d.published_at,
       exists (
           select from jsonb_array_elements(d.output -> 'edges') e
           join spillway.setting_history h on h.pipeline = d.pipeline and h.edge = e ->> 'name'
           join spillway.decision later on later.id = h.decision_id
           where h.issued_at > d.interval_end and h.issued_at < %(end)s and later.interval_end > d.interval_end
             and abs(h.keep - (e ->> 'keep')::double precision) > 1e-9
       ) as superseded
from spillway.decision d
where d.kind = 'qod' and d.origin = 'live' and d.interval_end > %(oldest)s and d.interval_end <= %(start)s
  and d.status = 'published' and d.verified is null and d.published_at <= %(start)s and d.published_at > %(since)s
order by d.pipeline, d.interval_end desc
