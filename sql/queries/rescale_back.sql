-- An application that a plan has changed gets back node and executors, unless somebody gave it others meanwhile.
update spillway.application a set node = p.node_from, executors = p.executors_from
from spillway.rescale_plan p
where p.id = %(plan)s and a.pipeline = p.pipeline and a.application = p.application
  and a.node is not distinct from p.node_to and a.executors = p.executors_to
