-- The move that is on its way, with its pipeline and application as they are, and whether a plan rescales the application.
select r.id, r.pipeline, r.application, r.source, r.target, r.state, r.requested_at, r.changed_at, r.node_before, p.mode, a.desired, a.node,
       a.launched_node, a.generation, h.state as beat,
       exists (select from spillway.rescale_plan c where c.pipeline = r.pipeline and c.application = r.application
               and c.state in ('planned', 'running', 'rolling_back')) as planned
from spillway.reschedule r
join spillway.pipeline p using (pipeline)
join spillway.application a using (pipeline, application)
left join spillway.heartbeat h on h.pipeline = a.pipeline and h.application = a.application and h.generation = a.generation
where r.state in ('requested', 'moving', 'warming')
