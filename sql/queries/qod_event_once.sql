-- Said once, until something else is said of the same pipeline by the same actor.
insert into spillway.event (actor, pipeline, kind, text)
select 'qod', %(pipeline)s, %(kind)s, %(text)s
where (%(kind)s, %(about)s) is distinct from (
    select e.kind, case when starts_with(e.text, %(about)s) then %(about)s end
    from spillway.event e
    where e.actor = 'qod' and e.pipeline = %(pipeline)s
    order by e.id desc limit 1
)
