-- The queue. Live work stands in chronos.jobs; what has ended moves to chronos.job_history in
-- the statement that ends it, so claims, vacuum, counts and unique keys cost what the live
-- work costs, whatever the history.
--
-- Lock order: everything that sweeps (claim, beat, reap, promote) skips locked rows and never
-- waits. Whoever must wait for job rows takes them in the order of their ids, and enqueue inserts
-- in the order of its unique keys. So there is no cycle to deadlock in.

create type chronos.job_state as enum (
    'scheduled', 'ready', 'running', 'succeeded', 'dead', 'cancelled'
);

-- The order of claims within a topic and priority. Drawn at insert and kept for life: a job
-- that returns to ready stands where it stood before. cache 1, because a value drawn early and
-- used late would land behind the claimers' frontier.
create sequence chronos.job_seq as bigint cache 1;

-- Widest alignment first: the order saves the padding a free order would cost on every row.
create table chronos.jobs (
    id uuid primary key,
    lease_token uuid,
    seq bigint not null default nextval('chronos.job_seq'),
    run_at timestamptz not null default now(),
    enqueued_at timestamptz not null default now(),
    lease_until timestamptz,
    state chronos.job_state not null default 'ready',
    attempt integer not null default 0,
    max_attempts integer not null default 5,
    timeout_s real,
    priority smallint not null default 5,
    cancel_requested boolean not null default false,
    topic text not null default 'default',
    kind text not null,
    unique_key text,
    payload jsonb not null default 'null',
    errors jsonb,
    constraint jobs_state_is_live check (state in ('scheduled', 'ready', 'running')),
    -- The claim is the lease grant: a running row without a lease cannot be stored.
    constraint jobs_running_has_lease check (
        (state = 'running') = (lease_token is not null)
        and (lease_token is null) = (lease_until is null)
    ),
    constraint jobs_priority_in_range check (priority between 0 and 9),
    constraint jobs_attempt_in_range check (
        attempt between 0 and 1000000 and max_attempts between 1 and 1000000
    ),
    constraint jobs_timeout_is_positive check (timeout_s > 0 and timeout_s < 'infinity'),
    constraint jobs_run_at_is_finite check (
        run_at between '2000-01-01 00:00:00+00' and '9999-01-01 00:00:00+00'
    ),
    constraint jobs_names_fit check (
        octet_length(topic) between 1 and 200 and topic <> '*'
        and octet_length(kind) between 1 and 200
        and octet_length(unique_key) between 1 and 1000
    ),
    constraint jobs_errors_is_array check (jsonb_typeof(errors) = 'array')
)
with (
    -- Room on each page for the version a claim writes beside the one it replaces.
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_insert_scale_factor = 0.2,
    autovacuum_analyze_scale_factor = 0.1,
    autovacuum_vacuum_cost_delay = 0
);

alter sequence chronos.job_seq owned by chronos.jobs.seq;

-- Each index serves one statement; schema/README.md says which. No index holds a lease column,
-- so a heartbeat is a HOT update.
create index jobs_ready on chronos.jobs (topic, priority, seq) where state = 'ready';
create index jobs_scheduled on chronos.jobs (run_at) where state = 'scheduled';
create index jobs_running on chronos.jobs (id) where state = 'running';
create unique index jobs_unique_key on chronos.jobs (unique_key) where unique_key is not null;

-- Append-only but for an operator's retry and discard. Retention drops whole days.
create table chronos.job_history (
    id uuid not null,
    lease_token uuid,
    run_at timestamptz not null,
    enqueued_at timestamptz not null,
    finished_at timestamptz not null default now(),
    state chronos.job_state not null,
    attempt integer not null,
    max_attempts integer not null,
    timeout_s real,
    run_s real,
    priority smallint not null,
    topic text not null,
    kind text not null,
    unique_key text,
    payload jsonb not null,
    errors jsonb,
    result jsonb,
    constraint job_history_state_is_final check (state in ('succeeded', 'dead', 'cancelled'))
)
partition by range (finished_at);

create index job_history_id on chronos.job_history (id);
create index job_history_not_succeeded on chronos.job_history (id) where state <> 'succeeded';

-- Catches what finishes on a day nobody made a partition for: nothing is refused.
create table chronos.job_history_default partition of chronos.job_history default;

-- The pause gate. A topic without a row is open; the row '*' is the gate of all topics.
create table chronos.topics (
    name text primary key check (octet_length(name) between 1 and 200),
    paused boolean not null default false,
    updated_at timestamptz not null default now()
);

-- "Notify me": left by a claimer that found its topic empty, taken back under load. A stale
-- mark costs a needless notification, a missing one costs the poll floor.
create table chronos.idle_marks (
    topic text not null,
    worker uuid not null,
    marked_at timestamptz not null default now(),
    primary key (topic, worker)
);

-- Presence, for people; never used to decide who is alive.
create table chronos.workers (
    id uuid primary key,
    host text not null,
    pid integer not null,
    version text not null,
    topics text[] not null,
    kinds text[] not null,
    started_at timestamptz not null default now(),
    seen_at timestamptz not null default now()
);

create view chronos.all_jobs as
select
    id, state, topic, kind, priority, attempt, max_attempts, timeout_s, unique_key, payload,
    null::jsonb as result, errors, run_at, enqueued_at, lease_token, lease_until,
    cancel_requested, null::timestamptz as finished_at, null::real as run_s
from chronos.jobs
union all
select
    id, state, topic, kind, priority, attempt, max_attempts, timeout_s, unique_key, payload,
    result, errors, run_at, enqueued_at, lease_token, null::timestamptz as lease_until,
    false as cancel_requested, finished_at, run_s
from chronos.job_history;

-- The bounded error history: stamped by the database clock, the newest ten kept.
create function chronos.push_error(errors jsonb, error jsonb) returns jsonb
language sql stable parallel safe
return case
    when error is null then errors
    when jsonb_array_length(coalesce(errors, '[]')) >= 10
        then (errors - 0) || jsonb_build_array(error || jsonb_build_object('at', now()))
    else coalesce(errors, '[]') || jsonb_build_array(error || jsonb_build_object('at', now()))
end;

-- Notifies the topics somebody waits for, and no others: NOTIFY takes an instance-wide lock at
-- commit, so under load, when nobody is idle, nobody pays for it.
create function chronos.wake(channel text, topics text[]) returns bigint
language sql volatile
as $$
    select count(pg_notify(channel, woken.topic))
    from (select distinct unnest(topics) as topic) as woken
    where exists (select from chronos.idle_marks as mark where mark.topic = woken.topic)
$$;

-- Makes the history partition of one UTC day; false when it is there already, when the default
-- partition holds rows of that day, or when a reader of the default partition is in the way.
-- Attached, not created in place: that takes no lock which stops the finishing of jobs on the
-- parent.
create function chronos.make_history_partition(day date) returns boolean
language plpgsql
set lock_timeout = '1s'
as $$
declare
    partition_name text := 'job_history_' || to_char(day, 'YYYYMMDD');
    day_start timestamptz := day::timestamp at time zone 'UTC';
    day_end timestamptz := (day + 1)::timestamp at time zone 'UTC';
begin
    perform pg_advisory_xact_lock(hashtext('chronos.make_history_partition'));
    -- Read, not to_regclass: its cache may predate the partition that another session made
    -- while this one waited for the lock.
    if exists (
        select from pg_catalog.pg_class as class
        where class.relnamespace = 'chronos'::regnamespace and class.relname = partition_name
    ) then
        return false;
    end if;
    if exists (
        select from chronos.job_history_default
        where finished_at >= day_start and finished_at < day_end
    ) then
        return false;
    end if;
    execute format(
        'create table chronos.%I (like chronos.job_history including all)', partition_name
    );
    execute format(
        'alter table chronos.job_history attach partition chronos.%I for values from (%L) to (%L)',
        partition_name, day_start, day_end
    );
    return true;
exception
    when lock_not_available then
        return false;
end
$$;

-- Drops the history partitions of days that ended before the given instant; their names. One
-- that somebody is reading is left for another time: a drop that waits for its lock has every
-- finish wait behind it. One caller at a time; a second one has nothing to do.
create function chronos.drop_history_partitions(before timestamptz) returns setof text
language plpgsql
set lock_timeout = '200ms'
as $$
declare
    partition_name text;
begin
    if not pg_try_advisory_xact_lock(hashtext('chronos.drop_history_partitions')) then
        return;
    end if;
    for partition_name in
        select child.relname::text
        from pg_catalog.pg_inherits as link
        join pg_catalog.pg_class as child on child.oid = link.inhrelid
        where link.inhparent = 'chronos.job_history'::regclass
          and child.relname ~ '^job_history_[0-9]{8}$'
          and (to_date(right(child.relname, 8), 'YYYYMMDD') + 1)::timestamp at time zone 'UTC'
              <= before
        order by child.relname
    loop
        begin
            execute format('drop table chronos.%I', partition_name);
        exception
            when lock_not_available then
                return;
        end;
        return next partition_name;
    end loop;
end
$$;
