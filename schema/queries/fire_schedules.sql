-- Fires schedules: moves each cursor and inserts its jobs, both or neither, and only where the
-- schedule still stands as it was read. An edit, a pause or another process's fire in between wins.
--   $1 schedule ids · $2 versions, $3 cursors and $4 waiting occurrences as they were read ·
--   $5 next cursors (null: none) · $6 occurrences missed for good ·
--   of each fire, by schedule in order of occurrence: $7 schedule ids · $8 occurrences · $9 job
--   ids · $10 run_at · $11 payloads as text
-- Returns id, the occurrences fired, and how many overlap skipped, of every schedule it moved; one
-- that is missing was lost to somebody else. A job's id comes from its occurrence, so one that
-- lives already is not inserted again.
-- Overlap is judged under the lock, with a snapshot of its own (chronos.has_live_fire): `skip` fires
-- nothing while a fire lives; `queue` keeps one occurrence waiting instead.
-- Locks: the schedules, in id order; skips what others are firing or editing right now.
-- Index: primary key, jobs_schedule. What is given for a row is looked up among all of the batch,
-- so callers bound it.
with held as materialized (
    select
        schedule.*, given.next_at, given.missed,
        (schedule.overlap <> 'allow' or schedule.is_alarm)
            and chronos.has_live_fire(schedule.id) as lives
    from (
        select *
        from unnest(
            $1::uuid[], $2::bigint[], $3::timestamptz[], $4::timestamptz[], $5::timestamptz[],
            $6::bigint[]
        ) as unordered (id, version, cursor_at, queued_at, next_at, missed)
        order by id
    ) as given
    cross join lateral (
        select
            owned.id, owned.is_alarm, owned.overlap, owned.topic, owned.kind, owned.priority,
            owned.max_attempts, owned.timeout_s, owned.supervisor
        from chronos.schedules as owned
        where owned.id = given.id
          and owned.version = given.version
          and owned.next_run_at is not distinct from given.cursor_at
          and owned.queued_at is not distinct from given.queued_at
          and owned.status = 'active'
          and not owned.paused
        for update skip locked
    ) as schedule
),
candidate as materialized (
    select
        held.*, fire.job_id, fire.occurrence, fire.run_at, fire.payload,
        row_number() over (partition by held.id order by fire.occurrence) as place
    from held
    join unnest($7::uuid[], $8::timestamptz[], $9::uuid[], $10::timestamptz[], $11::text[])
        as fire (schedule_id, occurrence, job_id, run_at, payload)
        on fire.schedule_id = held.id
),
inserted as (
    insert into chronos.jobs (
        id, topic, kind, priority, payload, state, run_at, max_attempts, timeout_s, schedule_id,
        occurrence, supervisor
    )
    select
        job_id, topic, kind, priority, payload::jsonb,
        case when run_at > now() then 'scheduled' else 'ready' end::chronos.job_state, run_at,
        max_attempts, timeout_s, id, occurrence, supervisor
    from candidate
    where overlap = 'allow' or (place = 1 and not lives)
    order by occurrence, id
    on conflict do nothing
    returning id, schedule_id, occurrence, topic, state, run_at
),
fired as materialized (
    select
        schedule_id, array_agg(occurrence order by occurrence) as occurrences,
        (array_agg(id order by occurrence desc))[1] as last_job_id
    from inserted
    group by schedule_id
),
judged as materialized (
    select
        held.id, held.is_alarm, held.lives, held.next_at, held.missed,
        coalesce(fired.occurrences, '{}') as occurrences, fired.last_job_id,
        wanted.queued_at,
        case
            when held.overlap = 'allow' then 0
            else coalesce(wanted.fires, 0) - coalesce(cardinality(fired.occurrences), 0)
                - num_nonnulls(wanted.queued_at)
        end as skipped
    from held
    left join fired on fired.schedule_id = held.id
    left join (
        select
            id, count(*) as fires,
            min(occurrence) filter (
                where overlap = 'queue' and place = case when lives then 1 else 2 end
            ) as queued_at
        from candidate
        group by id
    ) as wanted on wanted.id = held.id
),
moved as (
    update chronos.schedules as schedule
    set (
            next_run_at, queued_at, status, skipped, last_occurrence, last_fire_at, last_job_id,
            updated_at
        ) = (
            select
                judged.next_at, judged.queued_at,
                case
                    when judged.next_at is not null or judged.queued_at is not null then 'active'
                    when not judged.is_alarm then 'finished'
                    -- Its last fire ends an alarm; without one, there is nothing to wait for.
                    when judged.lives or judged.last_job_id is not null then 'active'
                    else 'fired'
                end,
                schedule.skipped + judged.missed + judged.skipped,
                coalesce(
                    judged.occurrences[cardinality(judged.occurrences)], schedule.last_occurrence
                ),
                case when judged.last_job_id is null then schedule.last_fire_at else now() end,
                coalesce(judged.last_job_id, schedule.last_job_id), now()
            from judged
            where judged.id = schedule.id
        )
    where schedule.id = any (array(select judged.id from judged))
),
woken as materialized (
    select
        chronos.wake('chronos_ready', array(
            select inserted.topic from inserted where inserted.state = 'ready'
        )),
        chronos.wake('chronos_due', array(
            select inserted.topic from inserted
            where inserted.state = 'scheduled' and inserted.run_at < now() + interval '15 seconds'
        ))
)
select judged.id, judged.occurrences, judged.skipped
from judged, woken
