update spillway.reschedule set state = %(state)s, detail = %(detail)s, changed_at = clock_timestamp() where id = %(id)s
