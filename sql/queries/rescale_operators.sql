-- The checkpoint of each operator, whether a batch of it was committed, and what its batches have taken lately.
select s.operator, s.checkpoint, s.buckets, s.incarnation,
       (o.batch_id is not null and o.checkpoint = s.checkpoint) or b.newest is not null as committed,
       l.state_rows, l.state_bytes, b.input_rows, b.busy_s, b.span_s
from spillway.operator_state s
left join spillway.operator_actual o on o.pipeline = s.pipeline and o.operator = s.operator
left join lateral (
    select max(m.batch_id) as newest, sum(m.input_rows) filter (where m.ended_at > %(since)s)::bigint as input_rows,
           sum(m.batch_ms) filter (where m.ended_at > %(since)s)::double precision / 1000 as busy_s,
           extract(epoch from max(m.ended_at) - min(m.started_at) filter (where m.ended_at > %(since)s))::double precision as span_s
    from spillway.batch_metric m
    where m.pipeline = s.pipeline and m.operator = s.operator and m.checkpoint = s.checkpoint
) b on true
left join lateral (
    select m.state_rows, m.state_bytes from spillway.batch_metric m
    where m.pipeline = s.pipeline and m.operator = s.operator and m.checkpoint = s.checkpoint and m.batch_id = b.newest
    limit 1
) l on true
where s.pipeline = %(pipeline)s
order by s.operator
