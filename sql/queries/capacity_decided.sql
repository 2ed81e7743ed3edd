-- The decisions of one kind on one window.
select id, pipeline, mode, version, observation, status, reason, output
from spillway.decision
where kind = %(kind)s and interval_start = %(start)s and interval_end = %(end)s and origin = %(origin)s and replay = %(replay)s
  and policy = %(policy)s
order by pipeline
