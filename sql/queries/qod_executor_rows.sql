-- What the stages of each operator took of each executor's CPU time, as its driver last told.
select r.pipeline, r.application, r.operator, r.executor, sum(r.cpu_ms) as cpu_ms
from spillway.executor_rows r
join (
    select pipeline, operator, max(at) as at
    from spillway.executor_rows
    where at > %(since)s and at <= %(end)s and coalesce(written_at, at) <= %(closed)s
    group by pipeline, operator
) newest using (pipeline, operator, at)
where r.at > %(since)s and r.at <= %(end)s and r.cpu_ms is not null
group by r.pipeline, r.application, r.operator, r.executor
