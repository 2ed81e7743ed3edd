-- What plans to rescale do to applications in a window: the executors each should have, least and most while a plan is under way; when
-- it was begun, when it told what runs to change, when that was seen to have settled, and whether it left more of them; the generation that has rehearsed
-- and was told to take over. As it could be known at the end of the window.
select a.pipeline, a.application,
       coalesce(least(p.executors_from, p.executors_to), later.executors_from, a.executors) as least,
       coalesce(greatest(p.executors_from, p.executors_to), later.executors_from, a.executors) as most,
       p.id is not null and coalesce(p.ended_at > %(end)s, true) as under_way, t.told_at,
       (select min(s.began_at) from spillway.rescale_step s where s.plan = p.id and s.began_at <= %(end)s) as begun_at,
       coalesce(t.verified_at, case when recent.ended_at <= %(end)s then recent.ended_at end) as settled_at,
       coalesce(recent.executors_to > recent.executors_from and t.verified and not t.undone, false) as grew,
       taken.generation_to as rehearsed
from spillway.application a
left join lateral (
    select r.executors_from from spillway.rescale_plan r
    where r.pipeline = a.pipeline and r.application = a.application and r.requested_at > %(end)s
    order by r.id limit 1
) later on true
left join lateral (
    select r.id, r.executors_from, r.executors_to, r.ended_at from spillway.rescale_plan r
    where r.pipeline = a.pipeline and r.application = a.application and r.requested_at <= %(end)s
      and (r.ended_at is null or r.ended_at > %(warm)s)
    order by r.id desc limit 1
) recent on true
left join lateral (select recent.* where recent.ended_at is null or recent.ended_at > %(start)s) p on true
left join lateral (
    select max(s.ended_at) filter (where s.step in ('order', 'cutover') and s.state in ('done', 'undone')) as told_at,
           max(s.ended_at) filter (where s.step = 'verify') as verified_at,
           bool_or(s.step = 'verify' and s.state = 'done') as verified, bool_or(s.state = 'undone') as undone
    from spillway.rescale_step s where s.plan = recent.id and s.ended_at <= %(end)s
) t on true
left join lateral (
    select r.generation_to from spillway.rescale_plan r
    join spillway.rescale_step s on s.plan = r.id and s.step = 'cutover' and s.state = 'done' and s.ended_at <= %(end)s
    where r.pipeline = a.pipeline and r.application = a.application and r.requested_at > %(since)s::timestamptz - interval '1 hour'
      and exists (select from spillway.rescale_step e where e.plan = r.id and e.step in ('rehearsed', 'caught_up')
                  and coalesce((e.evidence ->> 'batches')::int, 0) > 0)
    order by r.id desc limit 1
) taken on true
where a.pipeline = any(%(pipelines)s)
