-- Batches since a moment per operator, those missing between the first and the last, and metric rows dropped.
select operator, count(*) as batches, max(batch_id) - min(batch_id) + 1 - count(*) as missing, max(metrics_dropped) as dropped
from spillway.batch_metric where pipeline = %(pipeline)s and ended_at >= %(since)s
group by operator
