insert into spillway.capacity (pipeline, edge, at, decision, flow, capacity, estimator, confidence, backlog) values %s
on conflict (pipeline, edge, at) do update
    set decision = excluded.decision, flow = excluded.flow, capacity = excluded.capacity, estimator = excluded.estimator,
        confidence = excluded.confidence, backlog = excluded.backlog
