-- An operator's checkpoint; its number never goes back.
insert into spillway.operator_state (pipeline, operator, buckets)
values (%(pipeline)s, %(operator)s, %(buckets)s)
on conflict (pipeline, operator) do update set buckets = excluded.buckets, changed_at = now()
where operator_state.buckets <> excluded.buckets
