-- Plans that are under way, the oldest first.
select id, pipeline, application, operator, kind, state, step
from spillway.rescale_plan
where state in ('planned', 'running', 'rolling_back')
order by id
