-- Keep per edge, with what is left of its time to live by the server's clock.
select edge, keep, decision_id, ttl_s - extract(epoch from now() - issued_at) as remaining_s
from spillway.edge_setting where pipeline = %(pipeline)s
