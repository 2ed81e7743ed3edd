-- The flow networks of one window in which bottlenecks are to be looked for.
select id, world, pipelines, body
from spillway.observation
where interval_start = %(start)s and interval_end = %(end)s and origin = %(origin)s and replay = %(replay)s and policy = %(policy)s
  and world like 'capacity/%%'
order by world
