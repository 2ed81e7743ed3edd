-- Elasticity: what capacity was detected, plans to rescale an operator with their steps, and what drivers are told and report for them.

alter table spillway.decision drop constraint decision_kind_check;
alter table spillway.decision add constraint decision_kind_check check (kind in ('qod', 'capacity', 'rescale'));

-- ---- what should be -------------------------------------------------------------------------------------------

-- Raised to have the operator's query stopped at a committed batch and started again inside the living driver, with the buckets
-- that are written here then.
alter table spillway.operator_state add column incarnation integer not null default 0;

-- A change of one operator's executors, buckets or node. Its row survives whatever carries it out.
create table spillway.rescale_plan (
    id          bigint generated always as identity primary key,
    decision    bigint references spillway.decision on delete set null,   -- null: a person asked
    pipeline    text not null,
    application text not null,
    operator    text not null,
    kind        text not null check (kind in ('restart', 'executors', 'handover', 'shadow')),
    state       text not null default 'planned'
                check (state in ('planned', 'running', 'rolling_back', 'done', 'rolled_back', 'failed')),
    step        text not null default '',    -- the step at work
    executors_from integer not null check (executors_from > 0),
    executors_to integer not null check (executors_to > 0),
    buckets_from integer not null check (buckets_from > 0),
    buckets_to  integer not null check (buckets_to > 0),
    node_from   text,
    node_to     text,
    checkpoint_from integer not null,
    checkpoint_to integer not null,          -- another one only for shadow
    generation_from integer not null,        -- of the application when the plan was made
    generation_to integer,                   -- of the successor, for handover and shadow
    incarnation_to integer,                  -- for restart
    passes      jsonb not null default '[]', -- every pass that changed the target, with its reason
    expected    jsonb not null default '{}', -- pause_s, rate
    observed    jsonb not null default '{}', -- pause_s, steady_s, rate, effective
    reason      text not null default '',
    detail      text not null default '',
    requested_by text not null,
    requested_at timestamptz not null default now(),
    changed_at  timestamptz not null default now(),
    ended_at    timestamptz,
    foreign key (pipeline, application) references spillway.application on delete cascade
);
create unique index rescale_one_at_a_time on spillway.rescale_plan (pipeline, application)
    where state in ('planned', 'running', 'rolling_back');
create index rescale_recent on spillway.rescale_plan (pipeline, operator, requested_at desc);

create table spillway.rescale_step (
    plan        bigint not null references spillway.rescale_plan on delete cascade,
    ordinal     integer not null,
    step        text not null,
    state       text not null default 'waiting' check (state in ('waiting', 'running', 'done', 'failed', 'undone')),
    attempts    integer not null default 0,
    began_at    timestamptz,
    ended_at    timestamptz,
    evidence    jsonb not null default '{}',
    detail      text not null default '',
    primary key (plan, ordinal)
);

-- One bucket of state before and after: a plan that is done has equal sums of rows and checksums on both sides.
create table spillway.bucket_handle (
    plan        bigint not null references spillway.rescale_plan on delete cascade,
    operator    text not null,
    moment      text not null check (moment in ('before', 'after')),
    bucket      integer not null,
    batch_id    bigint not null,             -- the committed batch whose state it is
    location    text not null,
    version     bigint not null,
    bytes       bigint not null,
    rows        bigint,                      -- null: not counted (yet)
    checksum    numeric,                     -- sum of the hashes of its rows, modulo 2^64
    primary key (plan, operator, moment, bucket)
);

-- A driver that rehearses beside the one that runs, to take over from it. It holds no lease until then.
create table spillway.successor (
    pipeline    text not null,
    application text not null,
    plan        bigint not null references spillway.rescale_plan on delete cascade,
    generation  integer not null,            -- what it will be; application.generation is raised to it at the cut-over
    node        text,
    executors   integer not null,
    operator    text not null,               -- whose buckets change, for shadow
    checkpoint_to integer not null,
    buckets_to  integer not null,
    desired     text not null default 'rehearse' check (desired in ('rehearse', 'take_over', 'withdraw')),
    launcher    text,
    handle      text,
    launched_at timestamptz,
    -- what is, written by the successor itself
    holder      text,
    state       text not null default 'wanted' check (state in
                ('wanted', 'starting', 'cloning', 'repartitioning', 'rehearsing', 'catching_up', 'ready', 'taking_over', 'running', 'failed', 'gone')),
    at          timestamptz,
    spark_app   text,
    batches     integer not null default 0,  -- rehearsed
    behind_rows bigint,                      -- of a shadow: rows the running query has committed and this one has not
    detail      text not null default '',
    primary key (pipeline, application),
    foreign key (pipeline, application) references spillway.application on delete cascade
);
create function spillway.notify_successor() returns trigger language plpgsql as $$
begin
    perform pg_notify('spillway_application', new.pipeline || '/' || new.application);
    return new;
end $$;
create trigger notify_successor after insert or update of desired on spillway.successor
    for each row execute function spillway.notify_successor();
create function spillway.notify_operator() returns trigger language plpgsql as $$
begin
    perform pg_notify('spillway_application', new.pipeline || '/' || new.operator);
    return new;
end $$;
create trigger notify_operator after update of incarnation, buckets on spillway.operator_state
    for each row execute function spillway.notify_operator();

-- ---- what is ---------------------------------------------------------------------------------------------------

alter table spillway.heartbeat add column executors integer;   -- registered with the driver

-- What a driver really runs of an operator.
create table spillway.operator_actual (
    pipeline    text not null,
    operator    text not null,
    application text not null,
    generation  integer not null,
    checkpoint  integer not null,
    buckets     integer not null,
    incarnation integer not null,
    phase       text not null check (phase in ('starting', 'running', 'stopping', 'repartitioning', 'stopped', 'failed')),
    batch_id    bigint,                      -- newest committed batch
    offsets     jsonb not null default '{}', -- its end: topic → partition → offset
    stopped_batch bigint,                    -- where the last stop for an incarnation came to rest
    stopped_at  timestamptz,
    started_at  timestamptz,                 -- when the query was last started
    detail      text not null default '',
    at          timestamptz not null default now(),
    primary key (pipeline, operator)
);

-- ---- what was detected ------------------------------------------------------------------------------------------

-- Capacity of every edge as it was estimated, so that the next evaluation goes on from it.
create table spillway.capacity (
    pipeline    text not null,
    edge        text not null,
    at          timestamptz not null,        -- end of the window
    decision    bigint references spillway.decision on delete cascade,
    flow        double precision,            -- rows per second on the edge
    capacity    double precision,
    estimator   text not null,               -- useful_rate, feedback, bandwidth
    confidence  double precision not null check (confidence between 0 and 1),
    backlog     bigint,
    primary key (pipeline, edge, at)
);
create index capacity_at on spillway.capacity (at);

-- ---- who may do what --------------------------------------------------------------------------------------------

grant insert, update on spillway.rescale_plan, spillway.rescale_step to spillway_control;
grant insert, update, delete on spillway.successor, spillway.bucket_handle, spillway.capacity to spillway_control;
grant insert, update on spillway.operator_actual to spillway_job;
grant insert, update on spillway.bucket_handle to spillway_job;
grant update (holder, state, at, spark_app, batches, behind_rows, detail) on spillway.successor to spillway_job;

-- ---- retention: as before, with what was detected and plans that have ended ---------------------------------------

create index capacity_decision on spillway.capacity (decision);          -- whoever deletes a decision looks for what refers to it
create index rescale_plan_decision on spillway.rescale_plan (decision);
-- Of other kinds there are few among all decisions on keeps.
create index decision_elastic on spillway.decision (kind, pipeline, interval_end desc) where kind <> 'qod';

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
    delete from capacity where at < oldest;
    delete from decision where interval_end < oldest;
    delete from observation where interval_end < oldest;
    delete from reschedule where changed_at < oldest and state in ('done', 'failed');
    delete from rescale_plan where ended_at < oldest and state in ('done', 'rolled_back', 'failed');   -- with steps and handles
    delete from policy_version v where first_used_at < oldest
        and not exists (select from decision d where d.policy = v.digest)
        and not exists (select from observation o where o.policy = v.digest);
    delete from pipeline_history h where at < oldest   -- what was in force on that day stays
        and exists (select from pipeline_history later where later.pipeline = h.pipeline and later.at > h.at and later.at <= oldest);
    return dropped;
end $$;
