-- One of these inputs of an operator that is to keep less than everything, or did lately; no row where none does.
select edge from spillway.edge_setting
where pipeline = %(pipeline)s and edge = any(%(edges)s) and keep < 1
union all
select edge from spillway.edge_metric
where pipeline = %(pipeline)s and operator = %(operator)s and ended_at > now() - make_interval(secs => %(lately_s)s) and keep < 1
limit 1
