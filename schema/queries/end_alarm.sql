-- Ends an alarm that is active. $1 id · $2 status it ends with · $3 error (null: the last one stays)
-- Returns its id, or nothing. Its fires are left alone. Locks: the schedule. Index: primary key.
update chronos.schedules as schedule
set status = $2, next_run_at = null, queued_at = null,
    last_error = coalesce($3::text, schedule.last_error), version = schedule.version + 1,
    updated_at = now()
where schedule.id = $1 and schedule.is_alarm and schedule.status = 'active'
returning schedule.id
