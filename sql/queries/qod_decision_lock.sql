-- The decision, for whoever has locked its pipeline; nothing when its status is another one meanwhile, when the pipeline is applied no
-- longer or was declared anew, or when a later decision was published.
select d.id
from spillway.decision d
join spillway.pipeline p using (pipeline)
where d.id = %(id)s and d.status = %(status)s and p.mode = 'apply' and p.desired = 'running' and p.version = d.version
  and not exists (
      select from spillway.decision later
      where later.kind = d.kind and later.pipeline = d.pipeline and later.origin = 'live' and later.interval_end > d.interval_end
        and later.status = 'published')
for update of d
