-- What was refused on one window.
select pipeline, reason, output is not null as decided
from spillway.decision
where kind = 'qod' and interval_start = %(start)s and interval_end = %(end)s and origin = %(origin)s and replay = %(replay)s and policy = %(policy)s
  and status = 'refused'
order by pipeline
