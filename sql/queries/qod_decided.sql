-- Decisions of one cycle on applied pipelines: those to be published, and those that decided nothing.
select id, pipeline, status, output
from spillway.decision
where kind = 'qod' and interval_start = %(start)s and interval_end = %(end)s and origin = 'live' and policy = %(policy)s
  and mode = 'apply' and status <> 'published'
order by pipeline
