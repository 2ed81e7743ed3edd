update spillway.application set handle = %(handle)s, launcher = %(launcher)s
where pipeline = %(pipeline)s and application = %(application)s and generation = %(generation)s;
