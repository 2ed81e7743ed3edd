update spillway.pipeline set mode = %(mode)s where pipeline = %(pipeline)s and mode <> %(mode)s
