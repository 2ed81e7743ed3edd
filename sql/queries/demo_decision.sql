-- The batches of an edge from the moment a decision was issued, in order, and whether each ran with it.
select e.batch_id, e.rows_read, e.rows_kept, e.decision_id = %(decision_id)s and e.keep_source = 'setting' as with_it
from spillway.edge_metric e
join spillway.batch_metric b using (pipeline, operator, checkpoint, batch_id)
where e.pipeline = %(pipeline)s and e.edge = %(edge)s and b.started_at >= (
    select issued_at from spillway.setting_history s
    where s.pipeline = e.pipeline and s.edge = e.edge and s.decision_id = %(decision_id)s)
order by e.batch_id
