-- It is waited for once more.
update spillway.rescale_step set attempts = attempts + 1, began_at = %(now)s where plan = %(plan)s and ordinal = %(ordinal)s
