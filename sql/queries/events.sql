-- The newest events after an id, oldest first.
select id, at, actor, pipeline, subject, kind, text
from (
    select * from spillway.event
    where id > %(after)s and (%(pipeline)s::text is null or pipeline = %(pipeline)s)
    order by id desc
    limit %(limit)s
) newest
order by id
