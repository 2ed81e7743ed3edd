update spillway.rescale_step set state = %(state)s, ended_at = %(now)s where plan = %(plan)s and ordinal = %(ordinal)s
