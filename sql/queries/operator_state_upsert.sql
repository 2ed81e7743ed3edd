-- An operator's checkpoint; its number never goes back. What a launched checkpoint has been given since is not for a file to change.
insert into spillway.operator_state (pipeline, operator, buckets, kind, inputs)
values (%(pipeline)s, %(operator)s, %(buckets)s, %(kind)s, %(inputs)s)
on conflict (pipeline, operator) do update
    set buckets = case when operator_state.launched_at is null then excluded.buckets else operator_state.buckets end,
        kind = excluded.kind, inputs = excluded.inputs, changed_at = now()
where (operator_state.buckets, operator_state.kind, operator_state.inputs) is distinct from (excluded.buckets, excluded.kind, excluded.inputs)
