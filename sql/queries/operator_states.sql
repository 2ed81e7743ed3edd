-- Checkpoints of a pipeline's operators.
select operator, checkpoint, buckets, max_rows from spillway.operator_state where pipeline = %(pipeline)s
