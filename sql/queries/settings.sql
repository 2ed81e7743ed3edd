-- Keep per edge as last set, and whether it has outlived its time to live.
select pipeline, edge, keep, decision_id, issued_at, ttl_s, issued_by, reason,
       coalesce(issued_at + make_interval(secs => ttl_s) < now(), false) as expired
from spillway.edge_setting
where pipeline = %(pipeline)s
order by edge
