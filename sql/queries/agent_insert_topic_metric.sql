insert into spillway.topic_metric (topic, partition, at, end_offset) values %s
