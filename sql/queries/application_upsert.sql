-- What an application should run; node and executors only where the declaration changed them.
insert into spillway.application (pipeline, application, version, desired, node, executors)
values (%(pipeline)s, %(application)s, %(version)s, %(desired)s, %(node)s, %(executors)s)
on conflict (pipeline, application) do update set
    version = case when %(restart)s then excluded.version else application.version end,
    node = case when %(set_node)s then excluded.node else application.node end,
    executors = case when %(set_executors)s then excluded.executors else application.executors end
