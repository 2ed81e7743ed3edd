-- Nodes that were measured lately, and how many of their cores nobody used very lately; null where nobody looked since then.
select node, greatest(0.0, max(cores) - sum(cpu_pct * window_s) filter (where at > %(idle_since)s)
                           / nullif(sum(window_s) filter (where at > %(idle_since)s), 0) / 100.0) as idle
from spillway.node_metric where at > %(since)s and at <= %(now)s::timestamptz + interval '5 s'
group by node order by node
