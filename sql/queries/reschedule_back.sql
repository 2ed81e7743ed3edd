update spillway.application a set node = r.source
from spillway.reschedule r where r.id = %(id)s and a.pipeline = r.pipeline and a.application = r.application and a.node = r.target
