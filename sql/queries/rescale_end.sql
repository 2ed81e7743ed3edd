update spillway.rescale_plan
set state = %(state)s, detail = %(detail)s, observed = observed || %(observed)s::jsonb, changed_at = clock_timestamp(), ended_at = clock_timestamp()
where id = %(id)s
