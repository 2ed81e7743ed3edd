-- Executors of the newest generation of every application, and the CPU of each over the window. An executor lives as long as
-- its node's agent finds it whenever it looks; on a node that nobody looks at any more, while others are looked at, none does.
with newest as (
    select distinct on (pipeline, application) pipeline, application, generation, spark_app, started_at, at, state
    from spillway.heartbeat
    where started_at <= %(end)s and spark_app is not null
    order by pipeline, application, generation desc
), looked as (
    select node, max(at) as at, max(max(at)) over () as anywhere
    from spillway.node_metric
    where at > %(since)s and at <= %(end)s and coalesce(written_at, at) <= %(closed)s
    group by node
), measured as (
    select e.*, l.at as looked
    from spillway.executor_cpu e
    left join looked l using (node)
    where e.at > %(since)s and e.at <= %(end)s and coalesce(e.written_at, e.at) <= %(closed)s
      and not coalesce(l.at < %(stale)s and l.anywhere >= %(stale)s, false)
)
select n.pipeline, n.application, n.generation, n.started_at, n.at as beat, n.state, m.node, m.executor,
       coalesce(sum(m.cpu_pct * m.window_s) filter (where m.at > %(start)s) / nullif(sum(m.window_s) filter (where m.at > %(start)s), 0),
                (array_agg(m.cpu_pct order by m.at desc))[1]) as cpu,
       max(m.at) as newest,
       coalesce(extract(epoch from max(m.at - m.written_at)), 0)::double precision as ahead_s
from newest n
left join measured m on m.spark_app = n.spark_app and m.executor <> 'driver'
group by n.pipeline, n.application, n.generation, n.started_at, n.at, n.state, m.node, m.executor
having m.executor is null or max(m.at) >= coalesce(max(m.looked), max(m.at))
order by n.pipeline, n.application, m.executor, m.node
