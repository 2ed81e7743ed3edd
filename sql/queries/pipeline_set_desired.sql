-- Whether a pipeline should run.
update spillway.pipeline set desired = %(desired)s, changed_at = now(), changed_by = %(by)s
where pipeline = %(pipeline)s
