-- What the last decision on each pipeline remembers, in the same chain: live ones of the same mode, or those of the same replay,
-- which begins where the live cycle was. Where it began is given, or it has as much of a memory as there are decisions of its name.
select distinct on (pipeline) pipeline, output -> 'remember' as remember
from spillway.decision
where kind = 'qod' and interval_end <= %(start)s and interval_end > %(since)s and status in ('decided', 'published', 'held') and output is not null
  and (origin, replay) in (('live', ''), (%(origin)s, %(replay)s)) and (origin = 'live' or policy = %(policy)s)
  and (%(begins)s::timestamptz is null or (origin = 'live') = (interval_end <= %(begins)s))
  and (pipeline || ' ' || mode) = any(%(modes)s)
order by pipeline, origin <> %(origin)s, interval_end desc
