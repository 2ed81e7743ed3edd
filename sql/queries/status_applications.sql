-- What every application should be and what its newest driver last said.
select a.pipeline, a.application, a.version, a.desired, a.generation, a.node, a.executors, a.attempts, a.launched_at,
       h.generation as beat_generation, h.state, h.version as running_version, h.ui, h.spark_app, h.metrics_dropped, h.detail,
       extract(epoch from now() - h.at)::double precision as beat_age_s
from spillway.application a
left join lateral (
    select * from spillway.heartbeat
    where pipeline = a.pipeline and application = a.application
    order by generation desc
    limit 1
) h on true
order by a.pipeline, a.application
