-- Whether there was a decision on an applied pipeline on one of the last windows.
select id
from spillway.decision
where kind = 'qod' and pipeline = %(pipeline)s and interval_end >= %(since)s and interval_end < %(end)s and origin = 'live' and mode = 'apply'
  and status in ('decided', 'published', 'held') and output is not null
limit 1
