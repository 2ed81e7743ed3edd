-- Takes a pipeline out of force; its versions stay for the record.
delete from spillway.pipeline where pipeline = %(pipeline)s
