-- What the cycles of Quality of Data said of floors in a window, the oldest first.
select output -> 'infeasible' as infeasible
from spillway.decision
where kind = 'qod' and pipeline = %(pipeline)s and interval_end > %(start)s and interval_end <= %(end)s and origin = 'live'
  and status in ('decided', 'published', 'held') and output is not null
order by interval_end
