-- A replayed batch replaces its rows.
delete from spillway.edge_metric
where pipeline = %(pipeline)s and operator = %(operator)s and checkpoint = %(checkpoint)s and batch_id = any(%(batch_ids)s)
