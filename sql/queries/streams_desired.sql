-- What should run, with when that was last decided.
select a.pipeline, a.application, a.desired = 'running' as running, p.changed_at as desired_since, a.version, a.generation, a.node,
       a.executors, a.launcher, a.handle, a.launched_at, a.attempts, a.generation > 0 and a.launched_node is distinct from a.node as moved
from spillway.application a
join spillway.pipeline p using (pipeline)
order by a.pipeline, a.application;
