-- What the last batch of an operator read, and how many rows it left behind; only where the controller may shed what is too much.
select b.ended_at, sum(e.rows_read)::bigint as rows_read, sum(e.lag_rows)::bigint as lag_rows
from spillway.pipeline p
join lateral (
    select batch_id, ended_at from spillway.batch_metric
    where pipeline = p.pipeline and operator = %(operator)s and checkpoint = %(checkpoint)s and ended_at > %(since)s
    order by ended_at desc limit 1
) b on true
join spillway.edge_metric e on e.pipeline = p.pipeline and e.operator = %(operator)s and e.checkpoint = %(checkpoint)s
    and e.batch_id = b.batch_id and e.ended_at = b.ended_at
where p.pipeline = %(pipeline)s and p.mode = 'apply'
group by b.ended_at
