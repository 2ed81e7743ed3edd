-- The intent to launch, before anything is submitted: no row when somebody else has launched or stopped it meanwhile.
update spillway.application
set generation = %(generation)s, launcher = %(launcher)s, handle = null, launched_at = %(now)s, launched_node = node,
    attempts = %(attempts)s
where pipeline = %(pipeline)s and application = %(application)s and generation = %(replaces)s and desired = 'running';
