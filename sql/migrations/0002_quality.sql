-- Quality of Data: the mode of a pipeline, what each cycle saw and decided, the verdicts of its gates, and moves to other nodes.

-- ---- what should be -------------------------------------------------------------------------------------------

alter table spillway.pipeline
    add column mode text not null default 'advise' check (mode in ('off', 'advise', 'apply'));

-- What should be at any moment of the past, so that a replay sees it as the cycle of that moment did.
create table spillway.pipeline_history (
    pipeline    text not null,
    at          timestamptz not null,
    version     integer not null,
    desired     text not null check (desired in ('running', 'stopped', 'removed')),
    mode        text not null,
    primary key (pipeline, at)
);
insert into spillway.pipeline_history select pipeline, changed_at, version, desired, mode from spillway.pipeline;

create function spillway.record_pipeline() returns trigger language plpgsql security definer set search_path = spillway as $$
begin
    insert into pipeline_history
    select coalesce(new.pipeline, old.pipeline), clock_timestamp(), coalesce(new.version, old.version),
           case tg_op when 'DELETE' then 'removed' else new.desired end, coalesce(new.mode, old.mode)
    on conflict (pipeline, at) do update set version = excluded.version, desired = excluded.desired, mode = excluded.mode;
    return null;
end $$;
create trigger record_pipeline after insert or update or delete on spillway.pipeline
    for each row execute function spillway.record_pipeline();

-- The node the current generation was launched for: when `node` becomes another one, the application is launched anew there.
alter table spillway.application add column launched_node text;
update spillway.application set launched_node = node where generation > 0;

-- ---- what was measured ----------------------------------------------------------------------------------------

-- When a row was written, by the clock of this server. A window is closed by it: a replay sees what the cycle could see, no
-- more; and a writer whose own clock runs ahead is found by it. Null: written before this column was there.
do $$
declare t text;
begin
    for t in select name from spillway.partitioned_table loop
        execute format('alter table spillway.%I add column written_at timestamptz', t);
        execute format('alter table spillway.%I alter column written_at set default clock_timestamp()', t);
    end loop;
end $$;

-- ---- what was decided -----------------------------------------------------------------------------------------

create table spillway.policy_version (
    digest      text primary key,            -- sha256 of the canonical body
    body        jsonb not null,
    first_used_at timestamptz not null default now()
);

-- What a decision saw, as `spillway decide qod` reads it: one world per cycle for all pipelines that are decided together.
create table spillway.observation (
    id          bigint generated always as identity primary key,
    interval_start timestamptz not null,
    interval_end timestamptz not null,
    origin      text not null check (origin in ('live', 'replay')),
    replay      text not null default '',
    policy      text not null references spillway.policy_version,
    world       text not null,               -- apply, advise; refused/<pipeline>: what a gate did not let through
    pipelines   text[] not null,
    body        jsonb not null,
    check ((origin = 'live') = (replay = '')),
    check (interval_start < interval_end),
    unique (interval_end, interval_start, origin, replay, policy, world)
);

create table spillway.decision (
    id          bigint primary key default nextval('spillway.decision_id'),
    kind        text not null default 'qod' check (kind in ('qod')),
    pipeline    text not null,
    interval_start timestamptz not null,
    interval_end timestamptz not null,
    origin      text not null check (origin in ('live', 'replay')),
    replay      text not null default '',    -- name of the replay
    mode        text not null check (mode in ('advise', 'apply')),
    version     integer not null,            -- of the pipeline
    policy      text not null references spillway.policy_version,
    observation bigint references spillway.observation on delete set null,
    status      text not null check (status in ('decided', 'refused', 'published', 'held', 'failed')),
    reason      text not null default '',    -- why it was refused or held, or failed
    output      jsonb,                       -- the pipeline's part of what was decided; null when refused before deciding
    expected    jsonb,
    verified    jsonb,
    decided_at  timestamptz not null default now(),
    published_at timestamptz,
    verified_at timestamptz,
    check ((origin = 'live') = (replay = '')),
    unique (pipeline, interval_end, interval_start, kind, origin, replay, policy)
);
create index decision_recent on spillway.decision (origin, interval_end desc);
create index decision_observation on spillway.decision (observation);   -- whoever deletes an observation looks for its decisions

create index setting_history_recent on spillway.setting_history (pipeline, edge, issued_at desc, decision_id desc);

create table spillway.gate_result (
    id          bigint generated always as identity primary key,
    decision    bigint not null references spillway.decision on delete cascade,
    gate        text not null check (gate in ('observation', 'decision')),
    suite       text not null,
    rule        text not null,
    success     boolean not null,
    evidence    jsonb not null,
    at          timestamptz not null default now()
);
create index gate_result_decision on spillway.gate_result (decision);

-- An application that is to run on another node. One at a time: the next is decided on what was measured after this one.
create table spillway.reschedule (
    id          bigint generated always as identity primary key,
    decision    bigint references spillway.decision on delete set null,
    pipeline    text not null,
    application text not null,
    source      text not null,
    target      text not null check (target <> source),
    state       text not null default 'requested' check (state in ('requested', 'moving', 'warming', 'done', 'failed')),
    generation  integer,                     -- the generation that was launched on the target
    reason      text not null,
    detail      text not null default '',
    requested_at timestamptz not null default now(),
    changed_at  timestamptz not null default now(),
    foreign key (pipeline, application) references spillway.application on delete cascade
);
create index reschedule_decision on spillway.reschedule (decision);
create unique index reschedule_one_at_a_time on spillway.reschedule ((true)) where state in ('requested', 'moving', 'warming');

-- ---- retention: as before, and what was decided before that day ---------------------------------------------------

create or replace function spillway.drop_partitions(keep_from date) returns integer
    language plpgsql security definer set search_path = spillway as $$
declare r record; dropped integer := 0; t text; oldest timestamptz := keep_from::timestamp at time zone 'UTC';
begin
    for r in
        select c.relname, p.relname as parent from pg_inherits i
        join pg_class c on c.oid = i.inhrelid join pg_class p on p.oid = i.inhparent
        join partitioned_table pt on pt.name = p.relname
        where c.relname ~ '_[0-9]{8}$' and to_date(right(c.relname, 8), 'YYYYMMDD') < keep_from
    loop
        execute format('drop table %I', r.relname);
        dropped := dropped + 1;
    end loop;
    for t in select name from partitioned_table loop
        execute format('delete from %I where %I < %L', t || '_default', partition_column(t), oldest);
    end loop;
    delete from event where at < oldest;
    delete from setting_history where issued_at < oldest;
    delete from decision where interval_end < oldest;
    delete from observation where interval_end < oldest;
    delete from reschedule where changed_at < oldest and state in ('done', 'failed');
    delete from policy_version v where first_used_at < oldest
        and not exists (select from decision d where d.policy = v.digest)
        and not exists (select from observation o where o.policy = v.digest);
    delete from pipeline_history h where at < oldest   -- what was in force on that day stays
        and exists (select from pipeline_history later where later.pipeline = h.pipeline and later.at > h.at and later.at <= oldest);
    return dropped;
end $$;

-- ---- who may do what --------------------------------------------------------------------------------------------

grant insert, update on spillway.observation, spillway.decision, spillway.reschedule to spillway_control;
grant insert, delete on spillway.gate_result to spillway_control;
grant insert on spillway.policy_version to spillway_control;
