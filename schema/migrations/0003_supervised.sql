-- Supervised attempts. A task whose attempts are supervised is never tried again by the queue: a
-- failed attempt ends as `failed`, and the statement that ends it enqueues the failure fact, a job
-- for the supervisor that the task names. What the supervisor decides on is a new task, linked to
-- the one that failed. A lease that runs out is no failure but a crash: the same attempt runs again.

-- Added here and used only after this transaction committed, which Postgres asks for.
alter type chronos.job_state add value 'failed';

-- supervisor: null, the queue tries again; '', nobody is asked; otherwise who decides.
-- retry_of: the attempt before; lineage_id: the first one; lineage_no: which one this is. The first
-- attempt has none of the three. All of it is null for a plain job: no row is rewritten, none grows.
alter table chronos.jobs
    add column supervisor text, add column retry_of uuid, add column lineage_id uuid,
    add column lineage_no integer;
alter table chronos.job_history
    add column supervisor text, add column retry_of uuid, add column lineage_id uuid,
    add column lineage_no integer;
alter table chronos.schedules add column supervisor text;

-- Not valid: what is there already is right, and need not be read to find that out. A supervisor's
-- name is part of a kind.
alter table chronos.jobs
    add constraint jobs_supervisor_fits check (octet_length(supervisor) <= 180) not valid,
    add constraint jobs_lineage_is_whole check (
        retry_of is null
        or (supervisor is not null and lineage_id is not null and lineage_no >= 2)
    ) not valid;
alter table chronos.schedules
    add constraint schedules_supervisor_fits check (octet_length(supervisor) <= 180) not valid;
alter table chronos.job_history drop constraint job_history_state_is_final;
alter table chronos.job_history
    add constraint job_history_state_is_final
    check (state not in ('scheduled', 'ready', 'running')) not valid;

-- Reads each table once while it is made; on a history of many millions, plan a quiet minute.
create index jobs_lineage on chronos.jobs (lineage_id) where lineage_id is not null;
create index job_history_lineage on chronos.job_history (lineage_id) where lineage_id is not null;

create or replace view chronos.all_jobs as
select
    id, state, topic, kind, priority, attempt, max_attempts, timeout_s, unique_key, payload,
    null::jsonb as result, errors, run_at, enqueued_at, lease_token, lease_until,
    cancel_requested, null::timestamptz as finished_at, null::real as run_s,
    schedule_id, occurrence, supervisor, retry_of, lineage_id, lineage_no
from chronos.jobs
union all
select
    id, state, topic, kind, priority, attempt, max_attempts, timeout_s, unique_key, payload,
    result, errors, run_at, enqueued_at, lease_token, null::timestamptz as lease_until,
    false as cancel_requested, finished_at, run_s, schedule_id, occurrence, supervisor, retry_of,
    lineage_id, lineage_no
from chronos.job_history;

-- Enqueues the failure facts of tasks that end as failed: called by the statement that ends them,
-- and only when there are any. A fact's id follows from the task and the run that failed, and keeps
-- the front of the task's own, so that a page of jobs shows the two side by side.
-- Twenty attempts go on for some four hours by the default backoff: longer than a bad deploy.
create function chronos.tell_supervisors(ids uuid[], attempts integer[], supervisors text[])
returns bigint
language plpgsql
as $$
declare
    told bigint;
begin
    insert into chronos.jobs (id, topic, kind, payload, max_attempts)
    select
        encode(
            substr(uuid_send(failed.id), 1, 9)
            || substr(sha256(convert_to(failed.id || '/' || failed.attempt, 'UTF8')), 1, 7),
            'hex'
        )::uuid,
        'chronos', 'chronos.supervise.' || failed.supervisor,
        jsonb_build_object('task', failed.id), 20
    from unnest(ids, attempts, supervisors) as failed (id, attempt, supervisor)
    order by failed.id
    on conflict do nothing;
    get diagnostics told = row_count;
    perform chronos.wake('chronos_ready', array['chronos']);
    return told;
end
$$;

-- As before, but that a fire which ends as failed counts as one that ends dead.
create or replace function chronos.note_fires(
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
            count(*) filter (
                where fire.outcome in ('dead', 'failed') and fire.is_after_success
            ) as failures
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
                    when first_outcomes[place] in ('dead', 'failed') then 'failed'
                    else 'cancelled'
                end,
                now()
            from (select width_bucket(schedule.id, noted_ids) as place) as found
        )
    where schedule.id = any (noted_ids);
    return cardinality(noted_ids);
end
$$;
