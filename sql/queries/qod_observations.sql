-- The worlds of one cycle that are to be decided.
select id, world, pipelines, body
from spillway.observation
where interval_start = %(start)s and interval_end = %(end)s and origin = %(origin)s and replay = %(replay)s and policy = %(policy)s
  and world not like 'refused/%%' and world not like 'capacity/%%'
  and world not like 'rescale/%%'
order by world
