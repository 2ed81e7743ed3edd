-- Renews the lease, and says what the driver should do: the newest generation, and whether it should run at all.
with renewed as (
    update spillway.lease set renewed_at = now()
    where pipeline = %(pipeline)s and application = %(application)s and generation = %(generation)s and holder = %(holder)s
    returning 1
)
select exists (select from renewed) as held, a.generation, a.desired
from (select 1) one left join spillway.application a on a.pipeline = %(pipeline)s and a.application = %(application)s
