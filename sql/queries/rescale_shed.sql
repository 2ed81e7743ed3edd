-- The least that any input of an operator kept in the batches of a checkpoint since a moment; no row where all of them kept everything.
select edge, keep from spillway.edge_metric
where pipeline = %(pipeline)s and operator = %(operator)s and checkpoint = %(checkpoint)s and ended_at > %(since)s and keep < 1
order by keep, edge limit 1
