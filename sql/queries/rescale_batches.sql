-- Batches of an operator in the order they ended, with how far all its partitions were read.
select b.checkpoint, b.batch_id, b.generation, b.started_at, b.ended_at, b.input_rows, b.batch_ms, b.state_rows, sum(m.end_offset)::bigint as read_to
from spillway.batch_metric b
left join spillway.partition_metric m using (pipeline, operator, checkpoint, batch_id, ended_at)
where b.pipeline = %(pipeline)s and b.operator = %(operator)s and b.ended_at > %(since)s
group by b.checkpoint, b.batch_id, b.generation, b.started_at, b.ended_at, b.input_rows, b.batch_ms, b.state_rows
order by b.ended_at, b.batch_id
