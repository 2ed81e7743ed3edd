-- By partition of each edge: rows that batches of the window read, and what the newest batch, of the newest checkpoint, left behind.
with own as (
    select m.*, rank() over (partition by m.pipeline, m.edge order by m.checkpoint desc, m.batch_id desc) as newest,
           max(m.checkpoint) over (partition by m.pipeline, m.edge) as last
    from spillway.partition_metric m
    where m.ended_at > %(since)s and m.ended_at <= %(end)s and coalesce(m.written_at, m.ended_at) <= %(closed)s
      and m.pipeline = any(%(pipelines)s)
)
select pipeline, edge, partition,
       sum(end_offset - start_offset) filter (where ended_at > %(start)s and checkpoint = last)::double precision as taken,
       max(latest_offset - end_offset) filter (where newest = 1)::double precision as left_behind
from own
group by pipeline, edge, partition
order by pipeline, edge, partition
