insert into spillway.topic_claim (topic, pipeline) select unnest(%(claims)s::text[]), %(pipeline)s
