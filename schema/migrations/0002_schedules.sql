-- Schedules and alarms. A schedule is a row that people edit; a fire is an ordinary job that
-- names its schedule and its occurrence. One statement moves the cursor and inserts the job, so
-- there is no order to get wrong.
--
-- Lock order: jobs before schedules. Whoever ends a fire holds its job and then takes its
-- schedule (chronos.note_fires), in the order of ids. So whoever holds a schedule never waits for
-- a job: fire_schedules only inserts, and an edit touches no job.

create table chronos.schedules (
    id uuid primary key,
    name text not null,
    is_alarm boolean not null default false,
    -- The app whose code made it; null: made by hand. And what the code said at the time.
    origin text,
    digest text,
    -- When: exactly one of the first three.
    cron text,
    interval_s double precision,
    once_at timestamptz,
    anchor_at timestamptz,
    tz text not null default 'UTC',
    gap text not null default 'shift',
    fold text not null default 'first',
    starts_at timestamptz,
    ends_at timestamptz,
    jitter_s double precision not null default 0,
    -- What about missed and overlapping occurrences.
    catch_up text not null default 'one',
    catch_up_max integer not null default 100,
    late_s double precision not null default 60,
    overlap text not null default 'allow',
    -- What to enqueue.
    kind text not null,
    topic text not null default 'default',
    priority smallint not null default 5,
    max_attempts integer not null default 5,
    timeout_s real,
    payload jsonb not null default 'null',
    -- How long it may go without a success, and whom to tell.
    expect_success_within_s double precision,
    expect_url text,
    -- Where it stands. Every edit adds one to the version; a fire moves the cursor next_run_at.
    paused boolean not null default false,
    status text not null default 'active',
    version bigint not null default 1,
    next_run_at timestamptz,
    queued_at timestamptz,
    broken_error text,
    skipped bigint not null default 0,
    last_occurrence timestamptz,
    last_fire_at timestamptz,
    last_job_id uuid,
    last_outcome text,
    last_error text,
    last_ended_at timestamptz,
    last_success_at timestamptz,
    consecutive_failures integer not null default 0,
    absent_at timestamptz,
    is_absent boolean not null default false,
    created_at timestamptz not null default now(),
    updated_at timestamptz not null default now(),
    constraint schedules_has_one_timing check (num_nonnulls(cron, interval_s, once_at) = 1),
    constraint schedules_interval_is_positive check (interval_s > 0 and interval_s < 'infinity'),
    constraint schedules_anchor_has_interval check (anchor_at is null or interval_s is not null),
    constraint schedules_rules_are_known check (
        gap in ('shift', 'skip') and fold in ('first', 'both')
        and catch_up in ('one', 'all', 'none') and overlap in ('allow', 'skip', 'queue')
    ),
    constraint schedules_bounds_hold check (
        jitter_s >= 0 and jitter_s < 'infinity' and late_s >= 0 and late_s < 'infinity'
        and catch_up_max between 1 and 1000 and starts_at <= ends_at
        and expect_success_within_s > 0 and expect_success_within_s < 'infinity'
    ),
    -- As on jobs, so that a fire is never refused for what its schedule says.
    constraint schedules_priority_in_range check (priority between 0 and 9),
    constraint schedules_attempts_in_range check (max_attempts between 1 and 1000000),
    constraint schedules_timeout_is_positive check (timeout_s > 0 and timeout_s < 'infinity'),
    constraint schedules_names_fit check (
        octet_length(name) between 1 and 200 and octet_length(origin) between 1 and 200
        and octet_length(topic) between 1 and 200 and topic <> '*'
        and octet_length(kind) between 1 and 200
    ),
    constraint schedules_cursor_is_finite check (
        next_run_at between '2000-01-01 00:00:00+00' and '9999-01-01 00:00:00+00'
    ),
    constraint schedules_status_is_known check (
        status in ('active', 'broken')
        or (status = 'finished' and not is_alarm)
        or (status in ('fired', 'failed', 'cancelled') and is_alarm)
    ),
    constraint schedules_broken_says_why check ((status = 'broken') = (broken_error is not null)),
    -- What does not fire has nothing to fire.
    constraint schedules_ended_is_at_rest check (
        status = 'active' or (next_run_at is null and queued_at is null)
    )
)
with (fillfactor = 70);

-- No index holds what the end of a fire writes, so that is a HOT update.
-- An ended alarm is kept for audit and frees its name.
create unique index schedules_living_name on chronos.schedules (name)
    where status not in ('fired', 'failed', 'cancelled');
create index schedules_name on chronos.schedules (name, id);
create index schedules_due on chronos.schedules (next_run_at)
    where status = 'active' and not paused and next_run_at is not null;
create index schedules_queued on chronos.schedules (id)
    where status = 'active' and not paused and queued_at is not null;
create index schedules_expected on chronos.schedules (absent_at)
    where status = 'active' and not paused and not is_absent and absent_at is not null;
create index schedules_origin on chronos.schedules (origin) where origin is not null;
create index schedules_absent on chronos.schedules (id) where is_absent;
create index schedules_ended on chronos.schedules (id)
    where status not in ('active', 'broken') and origin is null;

-- Null for every job that is no fire: costs a plain job nothing, and no row is rewritten.
alter table chronos.jobs add column schedule_id uuid, add column occurrence timestamptz;
alter table chronos.job_history add column schedule_id uuid, add column occurrence timestamptz;

-- Reads each table once while it is made; on a history of many millions, plan a quiet minute.
create index jobs_schedule on chronos.jobs (schedule_id) where schedule_id is not null;
create index job_history_schedule on chronos.job_history (schedule_id, finished_at)
    where schedule_id is not null;

create or replace view chronos.all_jobs as
select
    id, state, topic, kind, priority, attempt, max_attempts, timeout_s, unique_key, payload,
    null::jsonb as result, errors, run_at, enqueued_at, lease_token, lease_until,
    cancel_requested, null::timestamptz as finished_at, null::real as run_s,
    schedule_id, occurrence
from chronos.jobs
union all
select
    id, state, topic, kind, priority, attempt, max_attempts, timeout_s, unique_key, payload,
    result, errors, run_at, enqueued_at, lease_token, null::timestamptz as lease_until,
    false as cancel_requested, finished_at, run_s, schedule_id, occurrence
from chronos.job_history;

-- Carries how fires ended to their schedules, in the order of their occurrences: called by the
-- statement that ends them, and only when there are any. The last fire of an alarm ends the alarm.
-- Locks the schedules in id order; one that was removed meanwhile is not missed. One update for
-- all of them, each finding what is its own by its place among the ids (width_bucket): a statement
-- for each would set up the table's checks every time (measured: 85 µs a fire, not 15).
create function chronos.note_fires(
    ids uuid[], occurrences timestamptz[], outcomes text[], errors jsonb[]
) returns bigint
language plpgsql
as $$
declare
    noted_ids uuid[];
    first_outcomes text[];
    last_outcomes text[];
    last_errors text[];
    successes boolean[];
    failures bigint[];  -- Since the last success among these, or in all.
begin
    select
        array_agg(noted.id order by noted.id),
        array_agg(noted.first_outcome order by noted.id),
        array_agg(noted.last_outcome order by noted.id),
        array_agg(noted.last_error order by noted.id),
        array_agg(noted.has_success order by noted.id),
        array_agg(noted.failures order by noted.id)
    into noted_ids, first_outcomes, last_outcomes, last_errors, successes, failures
    from (
        select
            fire.id,
            (array_agg(fire.outcome order by fire.occurrence))[1] as first_outcome,
            (array_agg(fire.outcome order by fire.occurrence desc))[1] as last_outcome,
            (array_agg(fire.error order by fire.occurrence desc)
                filter (where fire.error is not null))[1] as last_error,
            bool_or(fire.outcome = 'succeeded') as has_success,
            count(*) filter (where fire.outcome = 'dead' and fire.is_after_success) as failures
        from (
            select
                given.id, given.occurrence, given.outcome,
                case when given.outcome <> 'succeeded' then nullif(left(concat_ws(
                    ': ', given.error ->> 'type', given.error ->> 'message'
                ), 500), '') end as error,
                coalesce(given.occurrence > max(given.occurrence)
                    filter (where given.outcome = 'succeeded')
                    over (partition by given.id), true) as is_after_success
            from unnest(ids, occurrences, outcomes, errors)
                as given (id, occurrence, outcome, error)
        ) as fire
        group by fire.id
    ) as noted;
    perform from chronos.schedules where id = any (noted_ids) order by id for update;
    update chronos.schedules as schedule
    set (
            last_outcome, last_ended_at, last_error, last_success_at, consecutive_failures,
            is_absent, absent_at, status, updated_at
        ) = (
            select
                last_outcomes[place], now(), coalesce(last_errors[place], schedule.last_error),
                case when successes[place] then now() else schedule.last_success_at end,
                case when successes[place] then 0 else schedule.consecutive_failures end
                    + failures[place],
                schedule.is_absent and not successes[place],
                case
                    when successes[place]
                        then now() + make_interval(secs => schedule.expect_success_within_s)
                    else schedule.absent_at
                end,
                case
                    when not schedule.is_alarm or schedule.status <> 'active'
                        or schedule.next_run_at is not null or schedule.queued_at is not null
                        then schedule.status
                    when schedule.once_at is null or first_outcomes[place] = 'succeeded'
                        then 'fired'
                    when first_outcomes[place] = 'dead' then 'failed'
                    else 'cancelled'
                end,
                now()
            from (select width_bucket(schedule.id, noted_ids) as place) as found
        )
    where schedule.id = any (noted_ids);
    return cardinality(noted_ids);
end
$$;

-- Whether a fire of this schedule lives. A function, because a volatile one looks with a snapshot
-- of its own: asked under the schedule's lock, it knows whatever committed before.
create function chronos.has_live_fire(schedule_id uuid) returns boolean
language plpgsql volatile
as $$
begin
    return exists (
        select from chronos.jobs as job where job.schedule_id = has_live_fire.schedule_id
    );
end
$$;

-- Says that a schedule falls due before schedulers that trust in notifications would look by
-- themselves (15 s). Nobody is idle, nobody trusts: then they look every second anyway.
create function chronos.wake_schedulers(due_at timestamptz) returns bigint
language sql volatile
as $$
    select count(pg_notify('chronos_due', ''))
    where due_at < now() + interval '15 seconds'
      and exists (select from chronos.idle_marks)
$$;
