-- An application and one of its operators as they are, and where a move takes the application.
select a.desired, a.generation, a.executors, a.node, s.buckets, s.checkpoint, s.kind, h.state as beat,
       exists (select from spillway.operator_actual o
               where o.pipeline = s.pipeline and o.operator = s.operator and o.checkpoint = s.checkpoint and o.batch_id is not null)
       or exists (select from spillway.batch_metric b
                  where b.pipeline = s.pipeline and b.operator = s.operator and b.checkpoint = s.checkpoint) as committed,
       (select r.target from spillway.reschedule r
        where r.pipeline = a.pipeline and r.application = a.application and r.state in ('requested', 'moving', 'warming')) as moving
from spillway.application a
join spillway.operator_state s on s.pipeline = a.pipeline and s.operator = %(operator)s
left join spillway.heartbeat h on h.pipeline = a.pipeline and h.application = a.application and h.generation = a.generation
where a.pipeline = %(pipeline)s and a.application = %(application)s
