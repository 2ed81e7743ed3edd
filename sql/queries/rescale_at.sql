update spillway.rescale_plan set state = %(state)s, step = %(step)s, detail = %(detail)s, changed_at = clock_timestamp()
where id = %(id)s
