-- From here on the successor is the application's driver; nothing where either is no longer as it was. One transaction with
-- `successor_told` and, where it has followed, `successor_checkpoint` or `successor_stays`.
update spillway.application a
set generation = p.generation_to, handle = s.handle, launcher = s.launcher, launched_at = %(now)s, node = p.node_to, launched_node = p.node_to,
    executors = p.executors_to, attempts = 1
from spillway.rescale_plan p
join spillway.successor s on s.plan = p.id
where p.id = %(plan)s and a.pipeline = p.pipeline and a.application = p.application and a.generation = p.generation_from
  and a.desired = 'running' and s.desired = 'rehearse' and s.state = 'ready' and s.handle is not null
