-- Said once, until something else is said of the same pipeline by the same actor.
insert into spillway.event (actor, pipeline, kind, text)
select 'qod', %(pipeline)s, %(kind)s, %(text)s
where not coalesce((
    select e.kind = %(kind)s and starts_with(e.text, %(about)s)
    from spillway.event e
    where e.actor = 'qod' and e.pipeline = %(pipeline)s
    order by e.id desc limit 1
), false)
