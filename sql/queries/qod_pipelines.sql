-- Pipelines that should run, as it was at a moment; those with mode off only when all are wanted.
select h.pipeline, h.version, h.mode, v.spec
from (
    select distinct on (pipeline) pipeline, version, desired, mode
    from spillway.pipeline_history
    where at <= %(end)s
    order by pipeline, at desc
) h
join spillway.pipeline_version v using (pipeline, version)
where h.desired = 'running' and (h.mode <> 'off' or %(all)s)
order by h.pipeline
