-- What operators read and kept, and what their applications used, in slices of the past that are over: slice 0 is the newest.
-- A batch counts in each slice as much as it ran in it. Behind the end of an operator's last batch another one may be running, whose
-- rows nobody knows yet: such slices are left out, also for others of its application that share the CPU with it. So are slices in which
-- one driver followed another, whose executors both used CPU for the same rows.
with slice as (
    select n, %(start)s::timestamptz - make_interval(secs => (n + 1) * %(width_s)s::double precision) as begins,
           %(start)s::timestamptz - make_interval(secs => n * %(width_s)s::double precision) as ends
    from generate_series(0, %(slices)s::integer - 1) n
), batch as (
    select b.pipeline, b.application, b.operator, b.started_at, b.ended_at, b.add_batch_ms, e.rows_read, e.rows_kept
    from spillway.batch_metric b
    join (
        select pipeline, operator, checkpoint, batch_id, sum(rows_read) as rows_read, sum(rows_kept) as rows_kept
        from spillway.edge_metric
        where ended_at > %(since)s and ended_at <= %(end)s and pipeline = any(%(pipelines)s)
        group by pipeline, operator, checkpoint, batch_id
    ) e using (pipeline, operator, checkpoint, batch_id)
    where b.ended_at > %(since)s and b.ended_at <= %(end)s and coalesce(b.written_at, b.ended_at) <= %(closed)s
      and b.ended_at > b.started_at and b.pipeline = any(%(pipelines)s)
), done as (
    select pipeline, application, operator, max(ended_at) as until from batch group by pipeline, application, operator
), work as (
    select pipeline, application, operator, n, sum(rows_read * part) as rows_read, sum(rows_kept * part) as rows_kept,
           sum(add_batch_ms * part) as busy_ms
    from batch join slice on started_at < ends and ended_at > begins
    cross join lateral (
        select extract(epoch from least(ended_at, ends) - greatest(started_at, begins))
             / extract(epoch from ended_at - started_at) as part
    ) overlap
    group by pipeline, application, operator, n
), used as (
    select pipeline, application, n, count(*) as executors, sum(cpu) as cpu
    from (
        select c.pipeline, c.application, c.spark_app, s.n, sum(c.cpu_pct * c.window_s) / sum(c.window_s) as cpu
        from spillway.executor_cpu c join slice s on c.at > s.begins and c.at <= s.ends
        where c.at > %(since)s and c.at <= %(end)s and coalesce(c.written_at, c.at) <= %(closed)s and c.executor <> 'driver'
          and c.pipeline = any(%(pipelines)s) and c.window_s > 0
        group by c.pipeline, c.application, c.spark_app, c.executor, s.n
    ) executor
    group by pipeline, application, n
    having count(distinct spark_app) = 1
), taken as (
    select r.pipeline, r.operator, s.n, sum(r.cpu_ms) as taken_ms
    from spillway.executor_rows r join slice s on r.at > s.begins and r.at <= s.ends
    where r.at > %(since)s and r.at <= %(end)s and coalesce(r.written_at, r.at) <= %(closed)s and r.pipeline = any(%(pipelines)s)
    group by r.pipeline, r.operator, s.n
)
select w.pipeline, w.application, w.operator, w.n, w.rows_read::double precision, w.rows_kept::double precision,
       w.busy_ms::double precision, t.taken_ms, u.executors, u.cpu
from work w
join slice s using (n)
join used u using (pipeline, application, n)
left join taken t using (pipeline, operator, n)
where not exists (
    select from done d
    left join taken busy on busy.pipeline = d.pipeline and busy.operator = d.operator and busy.n = w.n
    where d.pipeline = w.pipeline and d.application = w.application and d.until < s.ends
      and (d.operator = w.operator or busy.taken_ms > 0)
)
order by w.pipeline, w.application, w.operator, w.n
