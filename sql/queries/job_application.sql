-- The application as it should be, with the topology of its version and the checkpoint of each operator.
select a.version, a.desired, a.generation, a.node, a.executors, v.spec,
       (select coalesce(jsonb_object_agg(s.operator, jsonb_build_object(
                   'checkpoint', s.checkpoint, 'buckets', s.buckets, 'max_rows', s.max_rows, 'incarnation', s.incarnation,
                   'from_shadow', exists (select from spillway.rescale_plan p
                                          where p.pipeline = s.pipeline and p.operator = s.operator and p.checkpoint_from <> p.checkpoint_to
                                            and p.checkpoint_to = s.checkpoint),
                   'reported', (select max(m.batch_id) from spillway.partition_metric m
                                where m.pipeline = s.pipeline and m.operator = s.operator and m.checkpoint = s.checkpoint))), '{}')
        from spillway.operator_state s where s.pipeline = a.pipeline) as states
from spillway.application a
join spillway.pipeline_version v on v.pipeline = a.pipeline and v.version = a.version
where a.pipeline = %(pipeline)s and a.application = %(application)s
