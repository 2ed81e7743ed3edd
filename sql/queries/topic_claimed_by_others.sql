-- Topics of the lists that another pipeline claims, or shares while this one wants them for itself.
select topic, pipeline from spillway.topic_claim
where pipeline <> %(pipeline)s and topic = any(%(claims)s::text[] || %(shares)s::text[])
union
select e ->> 'topic', p.pipeline
from spillway.pipeline p
join spillway.pipeline_version v using (pipeline, version)
cross join jsonb_array_elements(v.spec -> 'edges') e
where p.pipeline <> %(pipeline)s and e ->> 'producer' is null and e ->> 'topic' = any(%(claims)s::text[])
order by 1, 2
