update spillway.lease set released_at = now()
where pipeline = %(pipeline)s and application = %(application)s and generation = %(generation)s and holder = %(holder)s
