-- Of a plan that was rolled back: what it had done is done no longer, but for having been looked at.
update spillway.rescale_step set state = 'undone', ended_at = coalesce(ended_at, clock_timestamp())
where plan = %(plan)s and state in ('done', 'running') and step <> 'validate'
