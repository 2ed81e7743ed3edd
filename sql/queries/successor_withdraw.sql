update spillway.successor set desired = 'withdraw' where plan = %(plan)s and desired = 'rehearse'
