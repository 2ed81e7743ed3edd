update spillway.successor set handle = %(handle)s, launcher = %(launcher)s where plan = %(plan)s
