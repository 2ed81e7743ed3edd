-- Pipelines that should run and have a mode, as it was at a moment.
select h.pipeline, h.version, h.mode, v.spec
from (
    select distinct on (pipeline) pipeline, version, desired, mode
    from spillway.pipeline_history
    where at <= %(end)s
    order by pipeline, at desc
) h
join spillway.pipeline_version v using (pipeline, version)
where h.desired = 'running' and h.mode <> 'off'
order by h.pipeline
