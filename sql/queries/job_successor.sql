-- What a driver that rehearses says of itself, and what it is told; no row: it is nobody's successor any more.
update spillway.successor
set holder = %(holder)s, state = %(state)s, at = now(), spark_app = %(spark_app)s, batches = %(batches)s, behind_rows = %(behind_rows)s,
    detail = %(detail)s
where pipeline = %(pipeline)s and application = %(application)s and plan = %(plan)s and generation = %(generation)s
