-- What was done to a pipeline since a moment, by whom.
select at, actor, text from spillway.event
where pipeline = %(pipeline)s and at >= %(since)s and kind not in ('dead_letter')
order by id
