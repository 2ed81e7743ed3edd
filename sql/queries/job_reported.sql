-- The newest batch of an operator's checkpoint that has metrics.
select max(batch_id) from spillway.partition_metric
where pipeline = %(pipeline)s and operator = %(operator)s and checkpoint = %(checkpoint)s
