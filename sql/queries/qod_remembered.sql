-- What the last decision on each pipeline remembers, in the same chain: live ones of the same mode, or those of the same replay,
-- which begins where the live cycle was.
select distinct on (pipeline) pipeline, output -> 'remember' as remember
from spillway.decision
where interval_end <= %(start)s and interval_end > %(since)s and status in ('decided', 'published', 'held') and output is not null
  and (origin, replay) in (('live', ''), (%(origin)s, %(replay)s)) and (origin = 'live' or policy = %(policy)s)
  and (pipeline || ' ' || mode) = any(%(modes)s)
order by pipeline, origin <> %(origin)s, interval_end desc
