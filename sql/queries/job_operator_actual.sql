-- What a driver really runs of an operator. One that was taken over from has nothing more to say.
insert into spillway.operator_actual as o (pipeline, operator, application, generation, checkpoint, buckets, incarnation, phase, batch_id,
    offsets, stopped_batch, stopped_at, started_at, detail)
values (%(pipeline)s, %(operator)s, %(application)s, %(generation)s, %(checkpoint)s, %(buckets)s, %(incarnation)s, %(phase)s, %(batch_id)s,
    %(offsets)s, %(stopped_batch)s, %(stopped_at)s, %(started_at)s, %(detail)s)
on conflict (pipeline, operator) do update
    set application = excluded.application, generation = excluded.generation, checkpoint = excluded.checkpoint, buckets = excluded.buckets,
        incarnation = excluded.incarnation, phase = excluded.phase, batch_id = excluded.batch_id, offsets = excluded.offsets,
        stopped_batch = excluded.stopped_batch, stopped_at = excluded.stopped_at, started_at = excluded.started_at,
        detail = excluded.detail, at = now()
where o.application <> excluded.application or o.generation <= excluded.generation
