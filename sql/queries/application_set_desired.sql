-- Whether the applications of a pipeline should run; a start begins without the back-off of earlier failures.
update spillway.application
set desired = %(desired)s, attempts = case when %(desired)s = 'running' then 0 else attempts end
where pipeline = %(pipeline)s and desired <> %(desired)s
