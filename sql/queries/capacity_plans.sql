-- Plans that were under way at some moment of a window: what was measured meanwhile says little about what an operator can do.
select id, pipeline, application, operator, kind, state
from spillway.rescale_plan
where requested_at < %(end)s and (ended_at is null or ended_at > %(start)s) and pipeline = any(%(pipelines)s)
order by id
