-- The fires of a schedule, the newest occurrence first: those that live and those that ended last.
--   $1 schedule id · $2 at most this many
-- Locks nothing. Index: jobs_schedule, job_history_schedule.
(
    select
        live.id, case when live.lease_token is null then live.state::text else 'running' end as state,
        live.occurrence, live.enqueued_at, live.attempt,
        live.errors -> -1 as error, null::timestamptz as finished_at
    from chronos.jobs as live
    where live.schedule_id = $1
    order by live.occurrence desc
    limit (select $2::bigint)
)
union all
(
    select
        ended.id, ended.state::text, ended.occurrence, ended.enqueued_at, ended.attempt,
        ended.errors -> -1, ended.finished_at
    from chronos.job_history as ended
    where ended.schedule_id = $1
    order by ended.finished_at desc
    limit (select $2::bigint)
)
order by occurrence desc, enqueued_at desc
limit (select $2::bigint)
