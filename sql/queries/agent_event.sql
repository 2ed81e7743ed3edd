insert into spillway.event (actor, subject, kind, text) values ('agent', %(node)s, 'dropped', %(text)s);
