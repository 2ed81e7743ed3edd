-- The target becomes the application's node; whoever converges launches it there. Nothing where all is no longer as it was.
with begun as (
    update spillway.reschedule r set state = 'moving', changed_at = %(now)s, begun_at = %(now)s
    from spillway.pipeline p, spillway.application a
    where r.id = %(id)s and r.state = 'requested' and p.pipeline = r.pipeline and p.mode = 'apply'
      and a.pipeline = r.pipeline and a.application = r.application and a.desired = 'running' and a.node is not distinct from r.node_before
      and not exists (select from spillway.rescale_plan c where c.pipeline = r.pipeline and c.application = r.application
                      and c.state in ('planned', 'running', 'rolling_back'))
    returning r.pipeline, r.application, r.target, r.node_before
)
update spillway.application a set node = begun.target
from begun
where a.pipeline = begun.pipeline and a.application = begun.application and a.node is not distinct from begun.node_before
