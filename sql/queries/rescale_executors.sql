-- As many executors as this; nothing where somebody else has changed their number.
update spillway.application set executors = %(executors)s
where pipeline = %(pipeline)s and application = %(application)s and executors = %(was)s
