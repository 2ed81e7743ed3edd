-- What was found of a pipeline before, the newest first, in the same chain: live ones, or those of the same replay and the live ones
-- before it.
select id, interval_end, origin, output
from spillway.decision
where kind = 'capacity' and pipeline = %(pipeline)s and version = %(version)s and interval_end <= %(end)s and interval_end > %(since)s
  and status = 'decided' and output is not null
  and (origin, replay) in (('live', ''), (%(origin)s, %(replay)s)) and (origin = 'live' or policy = %(policy)s)
  and (%(begins)s::timestamptz is null or (origin = 'live') = (interval_end <= %(begins)s))
order by interval_end desc, origin <> %(origin)s
limit %(limit)s
