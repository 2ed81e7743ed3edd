-- A metric that a job has written to the default partition but not yet committed was not seen by the move, and the new day
-- could then not be attached. The default partition is now locked before its rows move: writers wait for that moment.
create or replace function spillway.ensure_partitions(first_day date, days integer) returns integer
    language plpgsql security definer set search_path = spillway as $$
declare t text; d date; child text; made integer := 0; col text;
begin
    perform pg_advisory_xact_lock(hashtext('spillway.ensure_partitions'));
    for t in select name from partitioned_table order by name loop
        col := partition_column(t);
        for i in 0 .. days - 1 loop
            d := first_day + i;
            child := format('%s_%s', t, to_char(d, 'YYYYMMDD'));
            if to_regclass('spillway.' || child) is null then
                execute format('create table %I (like %I including defaults including constraints)', child, t);
                execute format('lock table %I in access exclusive mode', t || '_default');
                execute format('with moved as (delete from %I where %I >= %L and %I < %L returning *) insert into %I select * from moved',
                               t || '_default', col, d::timestamp at time zone 'UTC', col, (d + 1)::timestamp at time zone 'UTC', child);
                execute format('alter table %I attach partition %I for values from (%L) to (%L)',
                               t, child, d::timestamp at time zone 'UTC', (d + 1)::timestamp at time zone 'UTC');
                made := made + 1;
            end if;
        end loop;
    end loop;
    return made;
end $$;
