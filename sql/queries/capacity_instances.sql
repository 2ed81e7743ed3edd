-- Rows that each executor worked on in the window, as its driver told.
select pipeline, operator, executor, sum(rows)::double precision as rows
from spillway.executor_rows
where at > %(start)s and at <= %(end)s and coalesce(written_at, at) <= %(closed)s and pipeline = any(%(pipelines)s)
group by pipeline, operator, executor
