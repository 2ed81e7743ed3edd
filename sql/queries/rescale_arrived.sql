-- Rows that have arrived in these topics since a moment; null where nobody has looked twice.
select sum(rows)::bigint as rows from (
    select max(end_offset) - min(end_offset) as rows
    from spillway.topic_metric
    where topic = any(%(topics)s) and at > %(since)s
    group by topic, partition
    having count(*) > 1
) grown
