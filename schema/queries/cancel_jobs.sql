-- Cancels jobs: one that waits ends at once, a running one is asked to stop. $1 ids
-- Returns id and the state it was found in (no row: no live job has that id).
-- Locks: the given rows, in id order, waiting for whoever holds them; then the
-- schedules of fires that end here. Index: primary key.
with found as materialized (
    select job.*
    from chronos.jobs as job
    where job.id = any ($1::uuid[])
    order by job.id
    for update
),
asked as (
    update chronos.jobs as job
    set cancel_requested = true
    where job.id = any (array(select found.id from found where found.lease_token is not null))
    returning pg_notify('chronos_cancel', job.id::text)
),
removed as (
    delete from chronos.jobs as job
    where job.id = any (array(select found.id from found where found.lease_token is null))
),
ended as (
    insert into chronos.job_history (
        id, run_at, enqueued_at, state, attempt, max_attempts, timeout_s, priority, topic,
        kind, unique_key, payload, errors, schedule_id, occurrence, supervisor, retry_of,
        lineage_id, lineage_no
    )
    select
        id, run_at, enqueued_at, 'cancelled', attempt, max_attempts, timeout_s, priority, topic,
        kind, unique_key, payload, errors, schedule_id, occurrence, supervisor, retry_of,
        lineage_id, lineage_no
    from found
    where lease_token is null
),
noted as materialized (
    select chronos.note_fires(
        array_agg(schedule_id), array_agg(occurrence), array_agg('cancelled'::text),
        array_agg(errors -> -1)
    )
    from found
    where lease_token is null and schedule_id is not null
    having count(*) > 0
)
select found.id, case when found.lease_token is null then found.state::text else 'running' end as state
from found left join noted on true
