-- Removes applications that are no longer declared.
delete from spillway.application where pipeline = %(pipeline)s and application <> all(%(applications)s::text[])
