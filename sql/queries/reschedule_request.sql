-- One at a time: whoever comes second requests nothing.
insert into spillway.reschedule (decision, pipeline, application, source, target, reason, node_before)
select %(decision)s, a.pipeline, a.application, %(source)s, %(target)s, %(reason)s, a.node
from spillway.application a
where a.pipeline = %(pipeline)s and a.application = %(application)s
on conflict ((true)) where state in ('requested', 'moving', 'warming') do nothing
