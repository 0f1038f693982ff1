-- Writes a schedule anew, only if it stands as it was read: neither edited nor fired meanwhile.
--   $1 id · $2 version and $3 cursor as they were read · $4 the record, as JSON ·
--   $5 whether the time within which a success is expected begins anew
-- Returns its id, or nothing. What fires left behind (last_…, skipped) is not touched.
-- Locks: the schedule; no job. Index: primary key. Wakes schedulers as add_schedules does.
with edited as (
    update chronos.schedules as schedule
    set (
            origin, digest, cron, interval_s, once_at, anchor_at, tz, gap, fold, starts_at,
            ends_at, jitter_s, catch_up, catch_up_max, late_s, overlap, kind, topic, priority,
            max_attempts, timeout_s, payload, expect_success_within_s, expect_url, paused, status,
            next_run_at, queued_at, broken_error, last_error, supervisor
        ) = (
            select
                origin, digest, cron, interval_s, once_at, anchor_at, tz, gap, fold, starts_at,
                ends_at, jitter_s, catch_up, catch_up_max, late_s, overlap, kind, topic, priority,
                max_attempts, timeout_s, coalesce(payload, 'null'), expect_success_within_s,
                expect_url, paused, status, next_run_at,
                case when overlap = 'queue' and status = 'active' then schedule.queued_at end,
                broken_error, last_error, supervisor
            from jsonb_populate_record(null::chronos.schedules, $4::jsonb)
        ),
        absent_at = case
            when $5 then now() + make_interval(
                secs => ($4::jsonb ->> 'expect_success_within_s')::double precision
            )
            else schedule.absent_at
        end,
        is_absent = schedule.is_absent and not $5,
        version = schedule.version + 1,
        updated_at = now()
    where schedule.id = $1
      and schedule.version = $2
      and schedule.next_run_at is not distinct from $3::timestamptz
    returning schedule.id, schedule.next_run_at
)
select edited.id, chronos.wake_schedulers(edited.next_run_at) as woken from edited
