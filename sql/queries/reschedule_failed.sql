select application, target from spillway.reschedule
where pipeline = %(pipeline)s and state = 'failed' and changed_at >= %(since)s
