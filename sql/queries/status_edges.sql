-- The last word on every edge, of its consumer's present driver and checkpoint: keep in force, where it came from, lag, and the share
-- that was kept over a window.
select distinct on (e.pipeline, e.edge)
       e.pipeline, e.edge, e.keep, e.keep_source, e.decision_id, e.lag_rows, e.latency_mean_ms, e.latency_max_ms,
       extract(epoch from now() - e.ended_at)::double precision as age_s,
       (sum(e.rows_read) filter (where e.ended_at > now() - make_interval(secs => %(window_s)s))
            over (partition by e.pipeline, e.edge))::bigint as rows_read,
       (sum(e.rows_kept) filter (where e.ended_at > now() - make_interval(secs => %(window_s)s))
            over (partition by e.pipeline, e.edge))::bigint as rows_kept
from spillway.edge_metric e
join spillway.operator_state s using (pipeline, operator, checkpoint)
where e.ended_at > now() - make_interval(secs => greatest(%(window_s)s, 300))
  and exists (
      select from spillway.batch_metric b
      join spillway.application a using (pipeline, application, generation)
      where (b.pipeline, b.operator, b.checkpoint, b.batch_id) = (e.pipeline, e.operator, e.checkpoint, e.batch_id)
        and b.ended_at > now() - make_interval(secs => greatest(%(window_s)s, 300))
  )
order by e.pipeline, e.edge, e.ended_at desc
