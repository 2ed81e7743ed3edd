-- Sets the keep of one edge under a decision that is stored already.
insert into spillway.edge_setting (pipeline, edge, keep, decision_id, ttl_s, issued_by, reason)
values (%(pipeline)s, %(edge)s, %(keep)s, %(decision_id)s, %(ttl_s)s, %(by)s, %(reason)s)
on conflict (pipeline, edge) do update set
    keep = excluded.keep, decision_id = excluded.decision_id, issued_at = excluded.issued_at, ttl_s = excluded.ttl_s,
    issued_by = excluded.issued_by, reason = excluded.reason
