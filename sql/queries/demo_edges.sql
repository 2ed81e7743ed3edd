-- What every edge of a pipeline read and kept since a moment, the least keep it had, and the farthest it fell behind.
select edge, sum(rows_read)::bigint as rows_read, sum(rows_kept)::bigint as rows_kept, sum(rows_bad)::bigint as rows_bad,
       min(keep) as least_keep, coalesce(max(lag_rows), 0)::bigint as peak_lag
from spillway.edge_metric where pipeline = %(pipeline)s and ended_at >= %(since)s
group by edge
