insert into spillway.topic_claim (topic, pipeline) select unnest(%(claims)s), %(pipeline)s
