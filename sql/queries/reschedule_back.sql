-- The application of a move that was begun and failed gets back the node it had, unless somebody gave it another meanwhile.
update spillway.application a set node = r.node_before
from spillway.reschedule r
where r.id = %(id)s and r.begun_at is not null and a.pipeline = r.pipeline and a.application = r.application and a.node = r.target
