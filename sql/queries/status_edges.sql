-- The last word on every edge: keep in force, where it came from, lag, and the share that was kept over a window.
select distinct on (pipeline, edge)
       pipeline, edge, keep, keep_source, decision_id, lag_rows, latency_mean_ms, latency_max_ms,
       extract(epoch from now() - ended_at)::double precision as age_s,
       (sum(rows_read) filter (where ended_at > now() - make_interval(secs => %(window_s)s))
            over (partition by pipeline, edge))::bigint as rows_read,
       (sum(rows_kept) filter (where ended_at > now() - make_interval(secs => %(window_s)s))
            over (partition by pipeline, edge))::bigint as rows_kept
from spillway.edge_metric
where ended_at > now() - make_interval(secs => greatest(%(window_s)s, 300))
order by pipeline, edge, ended_at desc
