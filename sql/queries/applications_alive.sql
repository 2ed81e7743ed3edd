-- Applications that should run, or whose driver may still be alive: it holds a lease and its last word was not a farewell, or it
-- was launched a moment ago and has not said a word yet.
select a.application
from spillway.application a
left join spillway.lease l using (pipeline, application)
left join spillway.heartbeat h on h.pipeline = l.pipeline and h.application = l.application and h.generation = l.generation
where a.pipeline = %(pipeline)s
  and (a.desired = 'running'
       or (l.released_at is null and l.renewed_at > now() - make_interval(secs => %(lease_s)s)
           and coalesce(h.state, 'starting') not in ('stopped', 'failed', 'fenced'))
       or (a.launched_at > now() - make_interval(secs => %(launch_timeout_s)s)
           and not exists (select from spillway.heartbeat b
                           where b.pipeline = a.pipeline and b.application = a.application and b.generation >= a.generation)))
order by a.application
