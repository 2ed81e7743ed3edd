insert into spillway.event (actor, pipeline, subject, kind, text)
values ('streams', %(pipeline)s, %(application)s, %(kind)s, %(text)s);
