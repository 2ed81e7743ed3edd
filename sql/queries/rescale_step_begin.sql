update spillway.rescale_step set state = 'running', attempts = attempts + 1, began_at = %(now)s
where plan = %(plan)s and ordinal = %(ordinal)s and state = 'waiting'
