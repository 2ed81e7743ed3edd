-- When the oldest of what windows are made of was measured.
select least((select min(at) from spillway.node_metric), (select min(at) from spillway.executor_cpu),
             (select min(ended_at) from spillway.batch_metric)) as at
