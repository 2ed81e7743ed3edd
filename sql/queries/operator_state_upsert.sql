-- An operator's checkpoint; its number never goes back.
insert into spillway.operator_state (pipeline, operator, buckets, kind, inputs)
values (%(pipeline)s, %(operator)s, %(buckets)s, %(kind)s, %(inputs)s)
on conflict (pipeline, operator) do update
    set buckets = excluded.buckets, kind = excluded.kind, inputs = excluded.inputs, changed_at = now()
where (operator_state.buckets, operator_state.kind, operator_state.inputs) is distinct from (excluded.buckets, excluded.kind, excluded.inputs)
