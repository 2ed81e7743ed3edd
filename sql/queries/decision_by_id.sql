-- One decision, of whatever kind.
select id, pipeline, interval_start, interval_end, origin, replay, mode, version, policy, observation, status, reason, output, expected,
       verified, decided_at, published_at, kind
from spillway.decision where id = %(id)s
