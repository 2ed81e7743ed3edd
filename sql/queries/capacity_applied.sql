-- The pipeline, for whoever has locked it, if it is applied in this version.
select pipeline from spillway.pipeline
where pipeline = %(pipeline)s and version = %(version)s and mode = 'apply' and desired = 'running'
