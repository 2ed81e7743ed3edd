insert into spillway.heartbeat (pipeline, application, generation, holder, state, host, pid, spark_app, ui, version, metrics_dropped, detail, executors)
values (%(pipeline)s, %(application)s, %(generation)s, %(holder)s, %(state)s, %(host)s, %(pid)s, %(spark_app)s, %(ui)s, %(version)s,
        %(metrics_dropped)s, %(detail)s, %(executors)s)
on conflict (pipeline, application, generation) do update
    set holder = excluded.holder, state = excluded.state, at = now(), host = excluded.host, pid = excluded.pid,
        spark_app = excluded.spark_app, ui = excluded.ui, version = excluded.version, metrics_dropped = excluded.metrics_dropped,
        detail = excluded.detail, executors = excluded.executors
