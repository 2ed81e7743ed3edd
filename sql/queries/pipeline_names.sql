-- All pipelines, with the version in force.
select pipeline, version, desired, changed_at, changed_by from spillway.pipeline order by pipeline
