-- Where each partition of each edge was read to.
select distinct on (edge, partition) edge, partition, end_offset
from spillway.partition_metric where pipeline = %(pipeline)s
order by edge, partition, checkpoint desc, batch_id desc
