-- One bucket of state before or after a change; counted again, it replaces what was counted.
insert into spillway.bucket_handle (plan, operator, moment, bucket, batch_id, location, version, bytes, rows, checksum)
values (%(plan)s, %(operator)s, %(moment)s, %(bucket)s, %(batch_id)s, %(location)s, %(version)s, %(bytes)s, %(rows)s, %(checksum)s)
on conflict (plan, operator, moment, bucket) do update
    set batch_id = excluded.batch_id, location = excluded.location, version = excluded.version, bytes = excluded.bytes,
        rows = excluded.rows, checksum = excluded.checksum
