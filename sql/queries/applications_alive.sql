-- Applications that should run, or whose driver may still be alive: it holds a lease, and its last word was not a farewell.
select a.application
from spillway.application a
left join spillway.lease l using (pipeline, application)
left join spillway.heartbeat h on h.pipeline = l.pipeline and h.application = l.application and h.generation = l.generation
where a.pipeline = %(pipeline)s
  and (a.desired = 'running'
       or (l.released_at is null and l.renewed_at > now() - make_interval(secs => %(lease_s)s)
           and coalesce(h.state, 'starting') not in ('stopped', 'failed', 'fenced')))
order by a.application
