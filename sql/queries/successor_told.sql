update spillway.successor set desired = 'take_over' where plan = %(plan)s and desired = 'rehearse'
