-- What a driver is told: whether and as which generation its application should run, with how many executors, and of each operator
-- the incarnation, its buckets and its checkpoint.
select a.generation, a.desired, a.executors,
       (select coalesce(jsonb_object_agg(s.operator, jsonb_build_object(
                   'checkpoint', s.checkpoint, 'buckets', s.buckets, 'incarnation', s.incarnation)), '{}')
        from spillway.operator_state s where s.pipeline = a.pipeline and s.operator = any(%(operators)s)) as operators
from spillway.application a
where a.pipeline = %(pipeline)s and a.application = %(application)s
