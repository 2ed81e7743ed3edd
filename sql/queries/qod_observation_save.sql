-- What a live cycle saw is written once; a replay writes the same again.
insert into spillway.observation (interval_start, interval_end, origin, replay, policy, world, pipelines, body)
values (%(start)s, %(end)s, %(origin)s, %(replay)s, %(policy)s, %(world)s, %(pipelines)s, %(body)s::jsonb)
on conflict (interval_end, interval_start, origin, replay, policy, world) do update
    set pipelines = case excluded.origin when 'live' then observation.pipelines else excluded.pipelines end,
        body = case excluded.origin when 'live' then observation.body else excluded.body end
returning id
