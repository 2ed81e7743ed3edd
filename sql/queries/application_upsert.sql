-- What an application should run; node and executors only where the declaration changed them. One that was there before goes on
-- counting generations where it left off: its lease refuses older ones.
insert into spillway.application (pipeline, application, version, desired, node, executors, generation)
values (%(pipeline)s, %(application)s, %(version)s, %(desired)s, %(node)s, %(executors)s, coalesce(greatest(
    (select max(l.generation) from spillway.lease l where l.pipeline = %(pipeline)s and l.application = %(application)s),
    (select max(h.generation) from spillway.heartbeat h where h.pipeline = %(pipeline)s and h.application = %(application)s)), 0))
on conflict (pipeline, application) do update set
    version = case when %(restart)s then excluded.version else application.version end,
    node = case when %(set_node)s then excluded.node else application.node end,
    executors = case when %(set_executors)s then excluded.executors else application.executors end
