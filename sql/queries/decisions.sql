-- The newest decisions on what edges keep: live ones, or those of one replay.
select id, pipeline, interval_start, interval_end, origin, replay, mode, version, policy, observation, status, reason, output, expected,
       verified, decided_at, published_at
from spillway.decision
where kind = 'qod' and origin = case %(replay)s when '' then 'live' else 'replay' end and replay = %(replay)s
  and (%(pipeline)s::text is null or pipeline = %(pipeline)s)
order by interval_end desc, pipeline
limit %(limit)s
