-- CPU of every node over the window; where nothing was measured inside, what was measured last before it.
select node, (array_agg(cores order by at desc))[1] as cores,
       coalesce(sum(cpu_pct * window_s) filter (where at > %(start)s) / nullif(sum(window_s) filter (where at > %(start)s), 0),
                (array_agg(cpu_pct order by at desc))[1]) as cpu,
       max(at) as newest,
       coalesce(extract(epoch from max(at - written_at)), 0)::double precision as ahead_s
from spillway.node_metric
where at > %(since)s and at <= %(end)s and coalesce(written_at, at) <= %(closed)s
group by node
order by node
