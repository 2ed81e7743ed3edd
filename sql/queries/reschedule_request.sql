-- One at a time: whoever comes second requests nothing.
insert into spillway.reschedule (decision, pipeline, application, source, target, reason)
values (%(decision)s, %(pipeline)s, %(application)s, %(source)s, %(target)s, %(reason)s)
on conflict ((true)) where state in ('requested', 'moving', 'warming') do nothing
