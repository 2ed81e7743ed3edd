-- Everything that is known of what a plan changes: as it should be, as its driver says, and the driver that is to take over.
select a.desired, a.version, a.generation, a.node, a.launched_node, a.executors, a.handle, a.launcher, a.launched_at,
       s.checkpoint, s.buckets, s.incarnation, s.kind as operator_kind,
       h.state as beat, h.at as beat_at, h.started_at as beat_started_at, h.executors as registered, h.version as beat_version,
       f.state as beat_before, f.at as beat_before_at,
       o.generation as actual_generation, o.checkpoint as actual_checkpoint, o.buckets as actual_buckets, o.incarnation as actual_incarnation,
       o.phase, o.batch_id, o.offsets, o.stopped_batch, o.stopped_at, o.started_at, o.detail as actual_detail, o.at as actual_at,
       n.plan as successor_plan, n.generation as successor_generation, n.desired as successor_desired, n.launcher as successor_launcher,
       n.handle as successor_handle, n.launched_at as successor_launched_at, n.state as successor_state, n.at as successor_at,
       n.batches as successor_batches, n.behind_rows, n.detail as successor_detail,
       (select r.target from spillway.reschedule r
        where r.pipeline = p.pipeline and r.application = p.application and r.state in ('requested', 'moving', 'warming')) as moving
from spillway.rescale_plan p
join spillway.application a using (pipeline, application)
join spillway.operator_state s on s.pipeline = p.pipeline and s.operator = p.operator
left join spillway.heartbeat h on h.pipeline = a.pipeline and h.application = a.application and h.generation = a.generation
left join spillway.heartbeat f on f.pipeline = a.pipeline and f.application = a.application and f.generation = p.generation_from
left join spillway.operator_actual o on o.pipeline = p.pipeline and o.operator = p.operator
left join spillway.successor n on n.pipeline = p.pipeline and n.application = p.application
where p.id = %(id)s
