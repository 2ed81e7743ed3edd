-- A plan from what is to what should be. A checkpoint, a generation and an incarnation that a plan once had are never given again.
insert into spillway.rescale_plan (decision, pipeline, application, operator, kind, executors_from, executors_to, buckets_from, buckets_to,
                                   node_from, node_to, checkpoint_from, checkpoint_to, generation_from, generation_to, incarnation_to,
                                   passes, expected, reason, requested_by)
select %(decision)s, a.pipeline, a.application, s.operator, %(kind)s, a.executors, %(executors)s, s.buckets,
       coalesce(%(buckets)s, s.buckets), a.node, %(node)s, s.checkpoint,
       case when %(follows)s then 1 + greatest(s.checkpoint, (
           select max(greatest(p.checkpoint_to, p.checkpoint_left)) from spillway.rescale_plan p where p.pipeline = s.pipeline and p.operator = s.operator))
       else s.checkpoint end,
       a.generation,
       case when %(kind)s in ('handover', 'shadow') then 1 + greatest(a.generation, (
           select o.generation from spillway.successor o where o.pipeline = a.pipeline and o.application = a.application)) end,
       case when %(kind)s = 'restart' then s.incarnation + 1 end,
       %(passes)s, %(expected)s, %(reason)s, %(by)s
from spillway.application a
join spillway.operator_state s on s.pipeline = a.pipeline and s.operator = %(operator)s
where a.pipeline = %(pipeline)s and a.application = %(application)s
returning id
