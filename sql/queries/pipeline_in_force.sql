-- The version in force of one pipeline.
select p.pipeline, p.version, p.desired, v.spec, v.source, v.digest, v.applied_at, v.applied_by
from spillway.pipeline p
join spillway.pipeline_version v using (pipeline, version)
where p.pipeline = %(pipeline)s
