-- The newest evaluation of a pipeline, or the one that is named.
select id, pipeline, interval_start, interval_end, origin, replay, mode, version, policy, observation, status, reason, output, expected,
       verified, decided_at, published_at, kind
from spillway.decision
where kind = %(kind)s and pipeline = %(pipeline)s and origin = 'live' and (%(end)s::timestamptz is null or interval_end = %(end)s)
order by interval_end desc
limit 1
