-- One version of a pipeline, in force or not.
select pipeline, version, spec, source, digest, applied_at, applied_by
from spillway.pipeline_version
where pipeline = %(pipeline)s and version = %(version)s
