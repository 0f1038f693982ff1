-- One more fire of a schedule, now, whatever its timetable, its pause or an overlap say.
--   $1 schedule id · $2 occurrence, the instant it was asked for · $3 job id · $4 payload as text
-- Returns whether another fire of it lives; nothing if there is no such schedule. The cursor stays.
-- Locks nothing but the job it inserts. Index: primary key, jobs_schedule.
with inserted as (
    insert into chronos.jobs (
        id, topic, kind, priority, payload, run_at, max_attempts, timeout_s, schedule_id, occurrence,
        supervisor
    )
    select
        $3, schedule.topic, schedule.kind, schedule.priority, $4::text::jsonb, now(),
        schedule.max_attempts, schedule.timeout_s, schedule.id, $2, schedule.supervisor
    from chronos.schedules as schedule
    where schedule.id = $1
    on conflict do nothing
    returning topic
),
woken as materialized (
    select chronos.wake('chronos_ready', array(select inserted.topic from inserted))
)
select
    exists (
        select from chronos.jobs as job where job.schedule_id = $1 and job.id <> $3
    ) as overlaps
from inserted, woken
