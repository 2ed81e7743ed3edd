-- The line: what should be (pipeline, application, edge_setting), what is (lease, heartbeat), and what was measured.
-- Roles are made before this runs (sql/roles.sql): spillway_owner owns, spillway_control writes what should be,
-- spillway_job writes what is, spillway_read reads.

create schema spillway;

-- ---- what should be -------------------------------------------------------------------------------------------

create table spillway.pipeline_version (
    pipeline    text not null check (pipeline ~ '^[a-z][a-z0-9_]{0,39}$'),
    version     integer not null check (version > 0),
    spec        jsonb not null,              -- the checked topology, defaults filled in (spillway.model.topology)
    source      text not null,               -- the YAML as the person wrote it
    digest      text not null,               -- sha256 of the canonical spec
    applied_at  timestamptz not null default now(),
    applied_by  text not null,
    primary key (pipeline, version)
);

create table spillway.pipeline (
    pipeline    text primary key,
    version     integer not null,            -- the version in force
    desired     text not null default 'stopped' check (desired in ('running', 'stopped')),
    changed_at  timestamptz not null default now(),
    changed_by  text not null,
    foreign key (pipeline, version) references spillway.pipeline_version
);

-- Topics a pipeline claims: external ones it reads alone, and all that it writes.
create table spillway.topic_claim (
    topic       text primary key,
    pipeline    text not null references spillway.pipeline on delete cascade
);

create table spillway.application (
    pipeline    text not null references spillway.pipeline on delete cascade,
    application text not null,
    version     integer not null,            -- pipeline version this application should run
    desired     text not null default 'stopped' check (desired in ('running', 'stopped')),
    generation  integer not null default 0,  -- raised by whoever launches; the newest wins
    node        text,
    executors   integer not null check (executors > 0),
    launcher    text,                        -- which launcher made the current generation
    handle      text,                        -- what that launcher calls it (a submission id, a pid)
    launched_at timestamptz,
    attempts    integer not null default 0,  -- launches since it was last healthy: the back-off grows with it
    primary key (pipeline, application)
);

-- What an operator's checkpoint is. `checkpoint` is part of every path, transactional id and metric row.
create table spillway.operator_state (
    pipeline    text not null,
    operator    text not null,
    checkpoint  integer not null default 0,  -- raised to start the operator anew
    buckets     integer not null,
    kind        text not null,
    inputs      text[] not null,             -- topics it reads
    launched_at timestamptz,                 -- null: no driver was launched with this checkpoint, so nothing is fixed by it
    max_rows    bigint,                      -- learned bound of a batch, so that a restart begins with it
    changed_at  timestamptz not null default now(),
    primary key (pipeline, operator)
);

create table spillway.edge_setting (
    pipeline    text not null,
    edge        text not null,
    keep        double precision not null check (keep >= 0 and keep <= 1),
    decision_id bigint not null,
    issued_at   timestamptz not null default now(),
    ttl_s       double precision check (ttl_s > 0),   -- null: does not expire
    issued_by   text not null,
    reason      text not null default '',
    primary key (pipeline, edge)
);

create sequence spillway.decision_id;

create table spillway.setting_history (
    like spillway.edge_setting including defaults,
    primary key (pipeline, edge, decision_id)
);

create function spillway.record_setting() returns trigger language plpgsql security definer set search_path = spillway as $$
begin
    insert into setting_history select new.*
        on conflict (pipeline, edge, decision_id) do update set keep = excluded.keep, issued_at = excluded.issued_at;
    perform pg_notify('spillway_setting', new.pipeline);
    return new;
end $$;
create trigger record_setting after insert or update on spillway.edge_setting
    for each row execute function spillway.record_setting();

create function spillway.notify_application() returns trigger language plpgsql as $$
begin
    perform pg_notify('spillway_application', new.pipeline || '/' || new.application);
    return new;
end $$;
create trigger notify_application after insert or update on spillway.application
    for each row execute function spillway.notify_application();

-- Who launches an application makes checkpoints of its operators; from then on buckets, kind and inputs are fixed.
create function spillway.record_launch() returns trigger language plpgsql as $$
begin
    update spillway.operator_state s set launched_at = now()
    from spillway.pipeline_version v, jsonb_array_elements(v.spec -> 'applications') a
    where v.pipeline = new.pipeline and v.version = new.version and a ->> 'name' = new.application
      and s.pipeline = new.pipeline and a -> 'operators' ? s.operator and s.launched_at is null;
    return new;
end $$;
create trigger record_launch after update of generation on spillway.application
    for each row when (new.generation > old.generation) execute function spillway.record_launch();

-- ---- what is ---------------------------------------------------------------------------------------------------

create table spillway.lease (
    pipeline    text not null,
    application text not null,
    generation  integer not null,
    holder      text not null,
    acquired_at timestamptz not null default now(),
    renewed_at  timestamptz not null default now(),
    released_at timestamptz,
    primary key (pipeline, application)
);

create table spillway.heartbeat (
    pipeline    text not null,
    application text not null,
    generation  integer not null,
    holder      text not null,
    state       text not null check (state in ('starting', 'running', 'stopping', 'stopped', 'failed', 'fenced')),
    at          timestamptz not null default now(),
    started_at  timestamptz not null default now(),
    host        text,
    pid         integer,
    spark_app   text,
    ui          text,
    version     integer,
    metrics_dropped bigint not null default 0,
    detail      text not null default '',
    primary key (pipeline, application, generation)
);

create table spillway.event (
    id          bigint generated always as identity primary key,
    at          timestamptz not null default now(),
    actor       text not null,               -- which part of Spillway, or which person
    pipeline    text,
    subject     text,                        -- application, operator or edge
    kind        text not null,               -- started, stopped, restarted, fenced, keep, fallback, dead_letter, …
    text        text not null
);
create index event_at on spillway.event (at desc);

-- ---- what was measured: partitioned by day -----------------------------------------------------------------------

create table spillway.batch_metric (
    pipeline    text not null,
    application text not null,
    operator    text not null,
    checkpoint  integer not null,
    batch_id    bigint not null,
    generation  integer not null,
    started_at  timestamptz not null,
    ended_at    timestamptz not null,
    input_rows  bigint not null,
    output_rows bigint,
    rows_per_s  double precision,
    batch_ms    bigint not null,
    add_batch_ms bigint,
    planning_ms bigint,
    offsets_ms  bigint,
    wal_ms      bigint,
    commit_ms   bigint,
    state_rows  bigint,
    state_updated bigint,
    state_bytes bigint,
    state_commit_ms bigint,
    max_rows    bigint,                      -- the bound that held for this batch
    metrics_dropped bigint not null default 0
) partition by range (ended_at);
create index batch_metric_key on spillway.batch_metric (pipeline, operator, batch_id);
create index batch_metric_ended on spillway.batch_metric (ended_at);

create table spillway.edge_metric (
    pipeline    text not null,
    operator    text not null,               -- the consumer
    edge        text not null,
    checkpoint  integer not null,
    batch_id    bigint not null,
    ended_at    timestamptz not null,
    rows_read   bigint not null,
    rows_kept   bigint not null,
    rows_bad    bigint not null default 0,
    keep        double precision not null,
    keep_source text not null check (keep_source in ('default', 'setting', 'held', 'open')),
    decision_id bigint,
    lag_rows    bigint,
    latency_mean_ms double precision,
    latency_max_ms  double precision
) partition by range (ended_at);
create index edge_metric_key on spillway.edge_metric (pipeline, operator, batch_id);
create index edge_metric_ended on spillway.edge_metric (ended_at);

create table spillway.partition_metric (
    pipeline    text not null,
    operator    text not null,
    edge        text not null,
    checkpoint  integer not null,
    batch_id    bigint not null,
    ended_at    timestamptz not null,
    partition   integer not null,
    start_offset bigint,
    end_offset  bigint not null,
    latest_offset bigint
) partition by range (ended_at);
create index partition_metric_key on spillway.partition_metric (pipeline, operator, batch_id);
create index partition_metric_ended on spillway.partition_metric (ended_at);

-- Rows each executor worked on, from the driver's REST API, at most once a cycle.
create table spillway.executor_rows (
    pipeline    text not null,
    application text not null,
    operator    text not null,
    executor    text not null,
    at          timestamptz not null,
    rows        bigint not null,
    cpu_ms      double precision,            -- stages' CPU time of this operator, to split an executor several operators share
    window_s    double precision not null
) partition by range (at);
create index executor_rows_at on spillway.executor_rows (at);

-- Written by the agent beside each worker.
create table spillway.executor_cpu (
    node        text not null,
    spark_app   text not null,
    executor    text not null,               -- executor id, or 'driver'
    pipeline    text,
    application text,
    at          timestamptz not null,
    cpu_pct     double precision not null,   -- 100 = one core, over the window
    rss_bytes   bigint not null,
    window_s    double precision not null
) partition by range (at);
create index executor_cpu_at on spillway.executor_cpu (at);

create table spillway.node_metric (
    node        text not null,
    at          timestamptz not null,
    cores       integer not null,
    cpu_pct     double precision not null,   -- 0 … 100 × cores, everything on the node
    own_cpu_pct double precision not null,   -- of which Spillway's executors and drivers
    load1       double precision not null,
    mem_used    bigint not null,
    mem_total   bigint not null,
    net_rx_bps  double precision not null,
    net_tx_bps  double precision not null,
    window_s    double precision not null
) partition by range (at);
create index node_metric_at on spillway.node_metric (at);

-- End offsets of every topic a pipeline reads, read from Kafka without the job.
create table spillway.topic_metric (
    topic       text not null,
    partition   integer not null,
    at          timestamptz not null,
    end_offset  bigint not null
) partition by range (at);
create index topic_metric_at on spillway.topic_metric (topic, at);

create table spillway.partitioned_table (name text primary key);
insert into spillway.partitioned_table values
    ('batch_metric'), ('edge_metric'), ('partition_metric'), ('executor_rows'), ('executor_cpu'), ('node_metric'), ('topic_metric');

-- Every partitioned table has a default partition, so that a missing day never loses a row. Days are made ahead by
-- housekeeping; what has landed in the default meanwhile moves over.
do $$
declare t text;
begin
    for t in select name from spillway.partitioned_table loop
        execute format('create table spillway.%I partition of spillway.%I default', t || '_default', t);
    end loop;
end $$;

create function spillway.partition_column(tbl text) returns text language sql immutable as
    $$ select case when tbl in ('batch_metric', 'edge_metric', 'partition_metric') then 'ended_at' else 'at' end $$;

-- The default partition is locked before its rows move: a row that is written but not yet committed would block the attaching.
create function spillway.ensure_partitions(first_day date, days integer) returns integer
    language plpgsql security definer set search_path = spillway as $$
declare t text; d date; child text; made integer := 0; col text;
begin
    perform pg_advisory_xact_lock(hashtext('spillway.ensure_partitions'));
    for t in select name from partitioned_table order by name loop
        col := partition_column(t);
        for i in 0 .. days - 1 loop
            d := first_day + i;
            child := format('%s_%s', t, to_char(d, 'YYYYMMDD'));
            if to_regclass('spillway.' || child) is null then
                execute format('create table %I (like %I including defaults including constraints)', child, t);
                execute format('lock table %I in access exclusive mode', t || '_default');
                execute format('with moved as (delete from %I where %I >= %L and %I < %L returning *) insert into %I select * from moved',
                               t || '_default', col, d::timestamp at time zone 'UTC', col, (d + 1)::timestamp at time zone 'UTC', child);
                execute format('alter table %I attach partition %I for values from (%L) to (%L)',
                               t, child, d::timestamp at time zone 'UTC', (d + 1)::timestamp at time zone 'UTC');
                made := made + 1;
            end if;
        end loop;
    end loop;
    return made;
end $$;

-- Drops whole days before `keep_from`, and what is that old in the default partitions. Returns how many days went.
create function spillway.drop_partitions(keep_from date) returns integer
    language plpgsql security definer set search_path = spillway as $$
declare r record; dropped integer := 0; t text;
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
        execute format('delete from %I where %I < %L', t || '_default', partition_column(t), keep_from::timestamp at time zone 'UTC');
    end loop;
    delete from event where at < keep_from::timestamp at time zone 'UTC';
    delete from setting_history where issued_at < keep_from::timestamp at time zone 'UTC';
    return dropped;
end $$;

select spillway.ensure_partitions((now() at time zone 'UTC')::date - 1, 9);

-- Exactly-once markers of queries that write to Postgres: one row per writer.
create table spillway.sink_marker (
    writer      text primary key,
    epoch       bigint not null,
    at          timestamptz not null default now()
);

-- ---- who may do what --------------------------------------------------------------------------------------------

grant usage on schema spillway to spillway_control, spillway_job, spillway_read;
grant select on all tables in schema spillway to spillway_control, spillway_job, spillway_read;
alter default privileges in schema spillway grant select on tables to spillway_control, spillway_job, spillway_read;

grant insert, update, delete on spillway.pipeline_version, spillway.pipeline, spillway.topic_claim, spillway.application,
    spillway.operator_state, spillway.edge_setting to spillway_control;
grant insert, update on spillway.lease, spillway.heartbeat to spillway_control;      -- marks what it knows to be dead
grant insert on spillway.event to spillway_control, spillway_job;
grant usage on sequence spillway.decision_id to spillway_control;
revoke execute on function spillway.ensure_partitions(date, integer), spillway.drop_partitions(date) from public;
grant execute on function spillway.ensure_partitions(date, integer), spillway.drop_partitions(date) to spillway_control;
grant insert on spillway.executor_cpu, spillway.node_metric, spillway.topic_metric to spillway_job;

grant insert, update on spillway.lease, spillway.heartbeat, spillway.sink_marker to spillway_job;
grant update (max_rows, changed_at) on spillway.operator_state to spillway_job;
grant insert, delete on spillway.batch_metric, spillway.edge_metric, spillway.partition_metric, spillway.executor_rows to spillway_job;
