-- Evidence is added to what there is.
update spillway.rescale_step set detail = %(detail)s, evidence = evidence || %(evidence)s::jsonb
where plan = %(plan)s and ordinal = %(ordinal)s
