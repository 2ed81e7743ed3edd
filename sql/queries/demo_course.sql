-- Every batch of every edge of a pipeline since a moment, in the order in which they began.
select e.edge, e.operator as consumer, b.started_at, e.ended_at, e.rows_read, e.rows_kept, e.keep, e.decision_id, e.lag_rows
from spillway.edge_metric e
join spillway.batch_metric b using (pipeline, operator, checkpoint, batch_id)
where e.pipeline = %(pipeline)s and b.started_at >= %(since)s
order by b.started_at, e.edge
