-- Puts a version in force; a new pipeline is stopped until somebody starts it.
insert into spillway.pipeline (pipeline, version, changed_by)
values (%(pipeline)s, %(version)s, %(by)s)
on conflict (pipeline) do update set version = excluded.version, changed_at = now(), changed_by = excluded.changed_by
returning desired
