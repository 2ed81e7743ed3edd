-- Decisions of one cycle, to be published.
select id, pipeline, mode, status, output, interval_end
from spillway.decision
where interval_start = %(start)s and interval_end = %(end)s and origin = 'live' and policy = %(policy)s
  and mode = 'apply' and status in ('decided', 'held') and output is not null
order by pipeline
