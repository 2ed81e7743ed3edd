-- The move that is on its way, with the application as it is.
select r.id, r.pipeline, r.application, r.source, r.target, r.state, r.changed_at, a.desired, a.node, a.launched_node, a.generation,
       h.state as beat
from spillway.reschedule r
join spillway.application a using (pipeline, application)
left join spillway.heartbeat h on h.pipeline = a.pipeline and h.application = a.application and h.generation = a.generation
where r.state in ('requested', 'moving', 'warming')
