-- What the live cycle saw of a pipeline in the windows that began since a moment.
select body from spillway.observation
where %(pipeline)s = any(pipelines) and origin = 'live' and world in ('advise', 'apply') and interval_start >= %(since)s
order by interval_end
