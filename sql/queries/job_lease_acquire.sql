-- Takes the lease for a generation if no newer one has it. Returns who held it before and whether that one may still be at work.
with before as (
    select generation, holder, released_at is null and renewed_at > now() - make_interval(secs => %(fence_s)s) as alive
    from spillway.lease where pipeline = %(pipeline)s and application = %(application)s for update
), taken as (
    insert into spillway.lease as l (pipeline, application, generation, holder)
    select %(pipeline)s, %(application)s, %(generation)s, %(holder)s
    where not exists (select from before where alive and generation < %(generation)s)
    on conflict (pipeline, application) do update
        set generation = excluded.generation, holder = excluded.holder, acquired_at = now(), renewed_at = now(), released_at = null
        where l.generation < excluded.generation or (l.generation = excluded.generation and l.holder = excluded.holder)
           or (l.generation = excluded.generation and l.released_at is not null)
    returning holder
)
select exists (select from taken) as taken, b.generation, b.holder, b.alive from (select 1) one left join before b on true
