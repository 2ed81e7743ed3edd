-- Every move of an application of a pipeline, the first one first.
select id, decision, application, source, target, state, reason from spillway.reschedule
where pipeline = %(pipeline)s
order by id
