-- Decisions on what edges keep, on the windows between two moments, in order.
select id, pipeline, interval_start, interval_end, origin, replay, mode, version, policy, observation, status, reason, output, expected,
       verified, decided_at, published_at
from spillway.decision
where kind = 'qod' and interval_start >= %(start)s and interval_end <= %(end)s and origin = %(origin)s and replay = %(replay)s
  and (%(policy)s::text is null or policy = %(policy)s) and (%(pipeline)s::text is null or pipeline = %(pipeline)s)
order by interval_end, pipeline
