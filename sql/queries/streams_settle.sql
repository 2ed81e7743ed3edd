update spillway.application set attempts = 0 where pipeline = %(pipeline)s and application = %(application)s;
