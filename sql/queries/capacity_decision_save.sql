-- The decision of an evaluation on one pipeline, once; again for a replay, and for a live one as long as it was not carried out or refused.
insert into spillway.decision
    (kind, pipeline, interval_start, interval_end, origin, replay, mode, version, policy, observation, status, reason, output, expected)
values (%(kind)s, %(pipeline)s, %(start)s, %(end)s, %(origin)s, %(replay)s, %(mode)s, %(version)s, %(policy)s, %(observation)s,
        %(status)s, %(reason)s, %(output)s::jsonb, %(expected)s::jsonb)
on conflict (pipeline, interval_end, interval_start, kind, origin, replay, policy) do update
    set mode = excluded.mode, version = excluded.version, observation = excluded.observation, status = excluded.status,
        reason = excluded.reason, output = excluded.output, expected = excluded.expected,
        decided_at = case when (decision.status, decision.output) is distinct from (excluded.status, excluded.output)
                     then excluded.decided_at else decision.decided_at end
    where decision.status <> 'published'
      and (decision.origin = 'replay' or decision.status <> 'refused' or excluded.status = 'refused')
returning id
