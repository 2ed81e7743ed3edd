-- Batches that had finished by the end of the window, with what each edge read and kept. Offsets are sums over the partitions.
select b.pipeline, b.operator, b.checkpoint, b.batch_id, b.started_at, b.ended_at, b.output_rows, b.add_batch_ms,
       coalesce(extract(epoch from b.ended_at - b.written_at), 0)::double precision as ahead_s,
       e.edge, e.rows_read, e.rows_kept, e.keep, e.decision_id, e.lag_rows, p.partitions, p.end_offset, p.latest_offset
from spillway.batch_metric b
left join spillway.edge_metric e using (pipeline, operator, checkpoint, batch_id, ended_at)
left join lateral (
    select count(*) as partitions, sum(end_offset)::bigint as end_offset,
           case when count(*) = count(latest_offset) then sum(latest_offset)::bigint end as latest_offset
    from spillway.partition_metric m
    where m.pipeline = e.pipeline and m.edge = e.edge and m.checkpoint = e.checkpoint and m.batch_id = e.batch_id
      and m.ended_at = e.ended_at
) p on true
where b.ended_at > %(since)s and b.ended_at <= %(end)s and coalesce(b.written_at, b.ended_at) <= %(closed)s
  and b.pipeline = any(%(pipelines)s)
order by b.pipeline, b.operator, b.checkpoint, b.batch_id
