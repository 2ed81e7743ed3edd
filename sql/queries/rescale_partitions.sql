-- How far each batch of an operator began and got, in the order of its batches.
select checkpoint, batch_id, edge, partition, start_offset, end_offset
from spillway.partition_metric
where pipeline = %(pipeline)s and operator = %(operator)s and ended_at > %(since)s
  and (checkpoint, batch_id) >= (%(checkpoint)s, %(batch_id)s)
order by checkpoint, batch_id, edge, partition
