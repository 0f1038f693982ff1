-- Marks schedules whose success is overdue as absent, and enqueues a wake for each that names a URL.
--   $1 at most this many · $2 kind and $3 topic of the wake
-- Returns name, last success and last error of those marked now. A success takes the mark off again.
-- Locks: the schedules it marks; skips locked ones. Index: schedules_expected.
with absent as (
    update chronos.schedules as schedule
    set is_absent = true
    where schedule.id = any (array(
        select overdue.id
        from chronos.schedules as overdue
        where overdue.status = 'active' and not overdue.paused and not overdue.is_absent
          and overdue.absent_at <= now()
        order by overdue.absent_at
        limit (select $1::bigint)
        for update skip locked
    ))
    returning
        schedule.name, schedule.absent_at, schedule.last_success_at, schedule.last_error,
        schedule.expect_url
),
told as (
    insert into chronos.jobs (id, topic, kind, payload)
    select
        gen_random_uuid(), $3, $2,
        jsonb_build_object('url', expect_url, 'body', jsonb_build_object(
            'schedule', name, 'absent_since', absent_at, 'last_success_at', last_success_at,
            'last_error', last_error
        ))
    from absent
    where expect_url is not null
    returning topic
),
woken as materialized (
    select chronos.wake('chronos_ready', array(select told.topic from told))
)
select absent.name, absent.last_success_at, absent.last_error from absent, woken
