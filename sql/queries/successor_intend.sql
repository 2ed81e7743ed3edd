-- The intent to launch a driver beside the one that runs, before anything is submitted. The row of an earlier plan is overwritten.
insert into spillway.successor (pipeline, application, plan, generation, node, executors, operator, checkpoint_to, buckets_to, launcher, launched_at)
select p.pipeline, p.application, p.id, p.generation_to, p.node_to, p.executors_to, p.operator, p.checkpoint_to, p.buckets_to, %(launcher)s, %(now)s
from spillway.rescale_plan p where p.id = %(plan)s and p.state = 'running'
on conflict (pipeline, application) do update
    set plan = excluded.plan, generation = excluded.generation, node = excluded.node, executors = excluded.executors,
        operator = excluded.operator, checkpoint_to = excluded.checkpoint_to, buckets_to = excluded.buckets_to, desired = 'rehearse',
        launcher = excluded.launcher, handle = null, launched_at = excluded.launched_at, holder = null, state = 'wanted', at = null,
        spark_app = null, batches = 0, behind_rows = null, detail = ''
