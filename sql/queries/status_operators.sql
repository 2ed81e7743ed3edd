-- The last batch of every operator, and its input over a window.
select distinct on (pipeline, operator)
       pipeline, operator, application, batch_id, batch_ms, state_rows, max_rows,
       extract(epoch from now() - ended_at)::double precision as age_s,
       (sum(input_rows) filter (where ended_at > now() - make_interval(secs => %(window_s)s))
            over (partition by pipeline, operator))::double precision / %(window_s)s as rows_per_s
from spillway.batch_metric
where ended_at > now() - make_interval(secs => greatest(%(window_s)s, 300))
order by pipeline, operator, ended_at desc
