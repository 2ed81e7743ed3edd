-- End offsets of topics, as read up to the end of the window.
select topic, partition, at, end_offset, coalesce(extract(epoch from at - written_at), 0)::double precision as ahead_s
from spillway.topic_metric
where topic = any(%(topics)s) and at > %(since)s and at <= %(end)s and coalesce(written_at, at) <= %(closed)s
order by topic, partition, at
