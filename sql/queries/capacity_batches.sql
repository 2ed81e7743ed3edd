-- Batches that had finished by the end of the window, with what each edge read and kept, and when their driver had started.
select b.pipeline, b.operator, b.checkpoint, b.batch_id, b.started_at, b.ended_at, b.output_rows, b.batch_ms, b.state_rows,
       b.state_bytes, h.started_at as driver_at, e.edge, e.rows_read, e.rows_kept, e.latency_mean_ms
from spillway.batch_metric b
left join spillway.heartbeat h using (pipeline, application, generation)
left join spillway.edge_metric e using (pipeline, operator, checkpoint, batch_id, ended_at)
where b.ended_at > %(since)s and b.ended_at <= %(end)s and coalesce(b.written_at, b.ended_at) <= %(closed)s
  and b.pipeline = any(%(pipelines)s)
order by b.pipeline, b.operator, b.checkpoint, b.batch_id
