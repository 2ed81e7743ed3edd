-- All pipelines in the version in force.
select p.pipeline, p.version, p.desired, v.spec
from spillway.pipeline p
join spillway.pipeline_version v using (pipeline, version)
order by p.pipeline
