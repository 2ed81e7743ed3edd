update spillway.rescale_plan set observed = observed || %(observed)s::jsonb where id = %(id)s
