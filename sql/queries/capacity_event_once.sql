-- Said once, until something else is said of the same pipeline by the same actor; requests of plans are not what it says.
insert into spillway.event (actor, pipeline, subject, kind, text)
select 'capacity', %(pipeline)s, %(subject)s, %(kind)s, %(text)s
where not coalesce((
    select e.kind = %(kind)s and starts_with(e.text, %(about)s)
    from spillway.event e
    where e.actor = 'capacity' and e.pipeline = %(pipeline)s and e.kind <> 'rescale'
    order by e.id desc limit 1
), false)
