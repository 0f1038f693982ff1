-- Lets the fires of a schedule that wait go on waiting. $1 schedule id · $2 until when
-- Returns the ids postponed; one that runs is not touched.
-- Locks: those jobs, in id order. Index: jobs_schedule, then primary key.
update chronos.jobs as job
set state = 'scheduled', run_at = $2
where job.id = any (array(
    select waiting.id
    from chronos.jobs as waiting
    where waiting.schedule_id = $1 and waiting.lease_token is null and $2 > now()
    order by waiting.id
    for update
))
returning job.id
