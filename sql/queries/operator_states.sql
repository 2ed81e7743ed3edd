-- Checkpoints of a pipeline's operators, and what is fixed by those that were launched.
select operator, checkpoint, buckets, kind, inputs, launched_at is not null as launched
from spillway.operator_state where pipeline = %(pipeline)s order by operator
