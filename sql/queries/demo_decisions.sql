-- What was decided for a pipeline in the windows that ended since a moment.
select id, interval_end, mode, status, reason, output, observation, decided_at, published_at from spillway.decision
where kind = 'qod' and pipeline = %(pipeline)s and origin = 'live' and interval_end >= %(since)s
order by interval_end
