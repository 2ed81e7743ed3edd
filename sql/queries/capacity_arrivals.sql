-- What arrived from outside, by window and edge, as evaluations have observed it; the newest first.
select o.interval_end, e.value ->> 'topic' as topic, e.value ->> 'to' as consumer, max((e.value ->> 'arrival')::double precision) as arrival
from spillway.observation o
cross join lateral jsonb_array_elements(o.body -> 'edges') as e (value)
where o.world = 'capacity/' || %(pipeline)s and o.interval_end > %(since)s and o.interval_end <= %(end)s
  and e.value ->> 'from' is null and e.value ? 'arrival'
group by o.interval_end, topic, consumer
order by o.interval_end desc
