-- The next version of a pipeline.
insert into spillway.pipeline_version (pipeline, version, spec, source, digest, applied_by)
select %(pipeline)s, coalesce(max(version), 0) + 1, %(spec)s::jsonb, %(source)s, %(digest)s, %(by)s
from spillway.pipeline_version
where pipeline = %(pipeline)s
returning version
