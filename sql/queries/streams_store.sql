-- Who this store is, since when it can be written to, and its clock.
select substr(md5(c.system_identifier::text || '/' || d.oid::text), 1, 12) as store, pg_postmaster_start_time() as up_since, now() as now
from pg_control_system() c, pg_database d
where d.datname = current_database();
