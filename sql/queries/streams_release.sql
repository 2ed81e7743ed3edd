-- This generation is known to be dead: nobody has to wait for its lease to run out, and nobody shall take it for alive.
with dead as (
    update spillway.heartbeat set state = 'failed', detail = %(why)s
    where pipeline = %(pipeline)s and application = %(application)s and generation = %(generation)s
      and state in ('starting', 'running', 'stopping')
)
update spillway.lease set released_at = %(now)s
where pipeline = %(pipeline)s and application = %(application)s and generation = %(generation)s and released_at is null;
