-- Seconds since a driver of an older generation gave its last heartbeat; null: there was none.
select extract(epoch from now() - max(at)) from spillway.heartbeat
where pipeline = %(pipeline)s and application = %(application)s and generation < %(generation)s
