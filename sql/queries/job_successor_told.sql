-- What a driver that rehearses is told, the newest generation, whether its plan is still carried out, and the checkpoint to go on from; no
-- row: its own is gone.
select n.desired, a.generation, p.state in ('planned', 'running') as open, n.checkpoint_to
from spillway.successor n
join spillway.application a using (pipeline, application)
join spillway.rescale_plan p on p.id = n.plan
where n.pipeline = %(pipeline)s and n.application = %(application)s and n.plan = %(plan)s and n.generation = %(generation)s
