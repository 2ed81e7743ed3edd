-- True when no driver of the pipeline was ever launched, so that no checkpoint can exist.
select not exists (select from spillway.application where pipeline = %(pipeline)s and generation > 0)
   and not exists (select from spillway.heartbeat where pipeline = %(pipeline)s)
   and not exists (select from spillway.lease where pipeline = %(pipeline)s) as never_launched
