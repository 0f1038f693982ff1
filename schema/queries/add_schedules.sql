-- Inserts schedules; one whose name a living one bears is left out. $1 records, as JSON
-- Returns the ids inserted. Wakes the schedulers of the idle when something falls due before they
-- would look by themselves (15 s). Locks: waits for whoever is adding the same name, so it inserts
-- in the order of names.
with added as (
    insert into chronos.schedules (
        id, name, is_alarm, origin, digest, cron, interval_s, once_at, anchor_at, tz, gap, fold,
        starts_at, ends_at, jitter_s, catch_up, catch_up_max, late_s, overlap, kind, topic,
        priority, max_attempts, timeout_s, payload, expect_success_within_s, expect_url, paused,
        status, next_run_at, supervisor, absent_at
    )
    select
        id, name, is_alarm, origin, digest, cron, interval_s, once_at, anchor_at, tz, gap, fold,
        starts_at, ends_at, jitter_s, catch_up, catch_up_max, late_s, overlap, kind, topic,
        priority, max_attempts, timeout_s, coalesce(payload, 'null'), expect_success_within_s,
        expect_url, paused, status, next_run_at, supervisor,
        now() + make_interval(secs => expect_success_within_s)
    from jsonb_populate_recordset(null::chronos.schedules, $1::jsonb)
    order by name
    on conflict do nothing
    returning id, next_run_at
),
woken as materialized (
    select chronos.wake_schedulers(min(added.next_run_at)) from added
)
select added.id from added, woken
