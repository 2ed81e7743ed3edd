-- The target becomes the application's node; whoever converges launches it there.
with begun as (
    update spillway.reschedule set state = 'moving', changed_at = %(now)s where id = %(id)s and state = 'requested'
    returning pipeline, application, target
)
update spillway.application a set node = begun.target
from begun where a.pipeline = begun.pipeline and a.application = begun.application
