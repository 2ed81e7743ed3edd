-- The decision, for whoever publishes it; nothing when it was published or withdrawn meanwhile, or the pipeline is applied no longer.
select d.id
from spillway.decision d
join spillway.pipeline p using (pipeline)
where d.id = %(id)s and d.status in ('decided', 'held') and p.mode = 'apply' and p.desired = 'running'
  and not exists (
      select from spillway.decision later
      where later.pipeline = d.pipeline and later.origin = 'live' and later.interval_end > d.interval_end and later.status = 'published')
for update of d for share of p
