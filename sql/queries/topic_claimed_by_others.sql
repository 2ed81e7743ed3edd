-- Topics of the lists that another pipeline claims, or shares while this one wants them for itself. Kafka does not tell
-- . from _ in the name of a topic.
select topic, pipeline from spillway.topic_claim
where pipeline <> %(pipeline)s
  and translate(topic, '.', '_') in (select translate(t, '.', '_') from unnest(%(claims)s::text[] || %(shares)s::text[]) t)
union
select e ->> 'topic', p.pipeline
from spillway.pipeline p
join spillway.pipeline_version v using (pipeline, version)
cross join jsonb_array_elements(v.spec -> 'edges') e
where p.pipeline <> %(pipeline)s and e ->> 'producer' is null
  and translate(e ->> 'topic', '.', '_') in (select translate(t, '.', '_') from unnest(%(claims)s::text[]) t)
order by 1, 2
