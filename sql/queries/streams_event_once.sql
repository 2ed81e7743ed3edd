-- Said once, until something else is said of the same application.
insert into spillway.event (actor, pipeline, subject, kind, text)
select 'streams', %(pipeline)s, %(application)s, %(kind)s, %(text)s
where %(kind)s is distinct from (
    select e.kind from spillway.event e
    where e.actor = 'streams' and e.pipeline = %(pipeline)s and e.subject = %(application)s
    order by e.id desc limit 1
);
