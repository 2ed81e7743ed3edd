-- The four roles, without passwords: whoever sets up the server gives them (the embedded mode and compose read them from the
-- environment). Run once per server by an administrator; safe to run again.
do $$
declare r text;
begin
    foreach r in array array['spillway_owner', 'spillway_control', 'spillway_job', 'spillway_read'] loop
        if not exists (select from pg_roles where rolname = r) then
            execute format('create role %I login nosuperuser nocreatedb nocreaterole noinherit', r);
        end if;
    end loop;
end $$;
