delete from spillway.topic_claim where pipeline = %(pipeline)s
