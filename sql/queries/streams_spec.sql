select v.spec, a.node, a.executors
from spillway.application a
join spillway.pipeline_version v on v.pipeline = a.pipeline and v.version = a.version
where a.pipeline = %(pipeline)s and a.application = %(application)s;
