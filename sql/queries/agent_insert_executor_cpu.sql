insert into spillway.executor_cpu (node, spark_app, executor, pipeline, application, at, cpu_pct, rss_bytes, window_s) values %s
