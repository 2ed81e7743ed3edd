-- Nothing where somebody else has taken the move a step on.
update spillway.reschedule set state = %(state)s, detail = %(detail)s, changed_at = clock_timestamp() where id = %(id)s and state = %(was)s
