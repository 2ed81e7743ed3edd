-- What should run, with when that was last decided; with the plan that changes it, and the driver that is to take over from it.
select a.pipeline, a.application, a.desired = 'running' as running, p.changed_at as desired_since, a.version, a.generation, a.node,
       a.executors, a.launcher, a.handle, a.launched_at, a.attempts, a.generation > 0 and a.launched_node is distinct from a.node as moved,
       coalesce(r.state in ('planned', 'running'), false) as planned, s.generation as successor, s.handle as successor_handle,
       coalesce(s.plan = r.id, false) as rehearses
from spillway.application a
join spillway.pipeline p using (pipeline)
left join spillway.successor s using (pipeline, application)
left join spillway.rescale_plan r on r.pipeline = a.pipeline and r.application = a.application
                                 and r.state in ('planned', 'running', 'rolling_back')
order by a.pipeline, a.application;
