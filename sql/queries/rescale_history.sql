-- Plans that have ended and were begun: one that was refused before its second step has changed nothing.
select p.operator, p.application, p.kind, p.state, p.executors_from, p.executors_to, p.buckets_from, p.buckets_to, p.decision, p.expected,
       p.observed, p.requested_at, p.ended_at
from spillway.rescale_plan p
where p.pipeline = %(pipeline)s and p.requested_at >= %(since)s and p.state in ('done', 'rolled_back', 'failed')
  and exists (select from spillway.rescale_step s where s.plan = p.id and s.ordinal > 0 and s.began_at is not null)
order by p.id
