-- One at a time: whoever comes second requests nothing. Nor of an application that a plan rescales.
insert into spillway.reschedule (decision, pipeline, application, source, target, reason, node_before)
select %(decision)s, a.pipeline, a.application, %(source)s, %(target)s, %(reason)s, a.node
from spillway.application a
where a.pipeline = %(pipeline)s and a.application = %(application)s
  and not exists (select from spillway.rescale_plan c where c.pipeline = a.pipeline and c.application = a.application
                  and c.state in ('planned', 'running', 'rolling_back'))
on conflict ((true)) where state in ('requested', 'moving', 'warming') do nothing
