insert into spillway.event (actor, pipeline, subject, kind, text)
values (%(actor)s, %(pipeline)s, %(subject)s, %(kind)s, %(text)s)
