-- What a driver that rehearses is told, the newest generation, and whether its plan is still carried out; no row: its own is gone.
select n.desired, a.generation, p.state in ('planned', 'running') as open
from spillway.successor n
join spillway.application a using (pipeline, application)
join spillway.rescale_plan p on p.id = n.plan
where n.pipeline = %(pipeline)s and n.application = %(application)s and n.plan = %(plan)s and n.generation = %(generation)s
