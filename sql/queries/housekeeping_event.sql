insert into spillway.event (actor, kind, text) values ('housekeeping', %(kind)s, %(text)s);
