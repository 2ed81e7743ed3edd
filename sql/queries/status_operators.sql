-- The last batch of every operator, and its input over a window, of its present driver and checkpoint.
select distinct on (b.pipeline, b.operator)
       b.pipeline, b.operator, b.application, b.batch_id, b.batch_ms, b.state_rows, b.max_rows,
       extract(epoch from now() - b.ended_at)::double precision as age_s,
       (sum(b.input_rows) filter (where b.ended_at > now() - make_interval(secs => %(window_s)s))
            over (partition by b.pipeline, b.operator))::double precision / %(window_s)s as rows_per_s
from spillway.batch_metric b
join spillway.application a using (pipeline, application, generation)
join spillway.operator_state s using (pipeline, operator, checkpoint)
where b.ended_at > now() - make_interval(secs => greatest(%(window_s)s, 300))
order by b.pipeline, b.operator, b.ended_at desc
