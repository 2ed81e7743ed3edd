-- Moves that were asked for and not made: of published decisions that got none although none was on its way, those that failed, and
-- those that nobody had begun in time. One of both columns is null: a decision names an operator, a move its application.
select d.pipeline, m.move ->> 'operator' as operator, null::text as application
from spillway.decision d
cross join lateral jsonb_array_elements(d.output -> 'moves') as m (move)
where d.kind = 'qod' and d.origin = 'live' and d.status = 'published' and d.interval_end > %(patience)s and d.interval_end < %(end)s
  and not exists (
    select from spillway.reschedule r
    where r.requested_at <= d.published_at and (r.state in ('requested', 'moving', 'warming') or r.changed_at >= d.published_at)
  )
union
select pipeline, null, application
from spillway.reschedule
where (state = 'failed' and changed_at > %(patience)s and changed_at <= %(end)s)
   or (begun_at is null and requested_at <= %(waited)s and (state = 'requested' or changed_at > %(patience)s))
