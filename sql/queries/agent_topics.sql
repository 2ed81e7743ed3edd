-- Topics that pipelines read.
select distinct e ->> 'topic' as topic
from spillway.pipeline p
join spillway.pipeline_version v using (pipeline, version), jsonb_array_elements(v.spec -> 'edges') e;
