update spillway.reschedule set state = 'warming', generation = %(generation)s, changed_at = %(now)s where id = %(id)s
