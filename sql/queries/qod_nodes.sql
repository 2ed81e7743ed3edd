-- CPU of every node over the window; where nothing was measured inside, what was measured last before it. What a driver's successor
-- and its executors use while it rehearses is not counted: that leaves with its plan. A driver that holds no lease goes by its name.
with rehearsals as (
    select p.node_to, l.began_at, coalesce(c.ended_at, p.ended_at, 'infinity') as ended_at,
           concat_ws(':', 'spillway', p.pipeline, p.application, p.generation_to) as driver
    from spillway.rescale_plan p
    join spillway.rescale_step l on l.plan = p.id and l.step = 'launch' and l.began_at <= %(end)s
    left join spillway.rescale_step c on c.plan = p.id and c.step = 'cutover'
    where p.requested_at > %(since)s::timestamptz - interval '2 hours'
), aside as (
    select e.node, e.at, sum(e.cpu_pct) as cpu_pct
    from spillway.executor_cpu e
    where e.at > %(since)s and e.at <= %(end)s and coalesce(e.written_at, e.at) <= %(closed)s
      and exists (
          select from rehearsals r
          where e.at between r.began_at and r.ended_at
            and case when e.executor = 'driver' then e.spark_app = r.driver
                else e.pipeline is null and (r.node_to is null or r.node_to = e.node) end
      )
    group by e.node, e.at
), measured as (
    select m.node, m.at, m.cores, m.window_s, m.written_at, greatest(m.cpu_pct - coalesce(a.cpu_pct, 0), 0) as cpu_pct
    from spillway.node_metric m
    left join aside a on a.node = m.node and a.at = m.at
    where m.at > %(since)s and m.at <= %(end)s and coalesce(m.written_at, m.at) <= %(closed)s
)
select node, (array_agg(cores order by at desc))[1] as cores,
       coalesce(sum(cpu_pct * window_s) filter (where at > %(start)s) / nullif(sum(window_s) filter (where at > %(start)s), 0),
                (array_agg(cpu_pct order by at desc))[1]) as cpu,
       max(at) as newest,
       coalesce(extract(epoch from max(at - written_at)), 0)::double precision as ahead_s
from measured
group by node
order by node
