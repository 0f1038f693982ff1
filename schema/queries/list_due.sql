-- Schedules to fire: those whose time has come, and those whose waiting occurrence may go ahead
-- because no fire of theirs lives. $1 at most this many of each
-- Returns at least one row: the database's clock, the seconds until the next one is due (null:
-- none is), whether an occurrence waits, whether a success is overdue that mark_absent does not know
-- of, how many are absent, and one schedule a row (null: none is due).
-- Locks nothing. Index: schedules_due, schedules_queued, schedules_expected, schedules_absent,
-- jobs_schedule, then primary key. The
-- limit hides in a subselect, as in promote_jobs: what is not due costs nothing. `not exists` would
-- be joined with every fire there is.
select clock.read_at, clock.next_due_s, clock.has_queued, clock.has_overdue, clock.absent,
    due.*
from (
    select
        now() as read_at,
        (
            select date_part('epoch', next.next_run_at - now())
            from chronos.schedules as next
            where next.status = 'active' and not next.paused and next.next_run_at > now()
            order by next.next_run_at
            limit 1
        ) as next_due_s,
        exists (
            select from chronos.schedules as queued
            where queued.status = 'active' and not queued.paused and queued.queued_at is not null
        ) as has_queued,
        exists (
            select from chronos.schedules as expected
            where expected.status = 'active' and not expected.paused and not expected.is_absent
              and expected.absent_at <= now()
        ) as has_overdue,
        (select count(*) from chronos.schedules as known where known.is_absent) as absent
) as clock
left join lateral (
    select schedule.*
    from chronos.schedules as schedule
    where schedule.id = any (array(
        (
            select ripe.id
            from chronos.schedules as ripe
            where ripe.status = 'active' and not ripe.paused and ripe.next_run_at <= now()
            order by ripe.next_run_at
            limit (select $1::bigint)
        )
        union all
        (
            select queued.id
            from chronos.schedules as queued
            where queued.status = 'active' and not queued.paused and queued.queued_at is not null
              and (
                  select job.id from chronos.jobs as job
                  where job.schedule_id = queued.id
                  limit 1
              ) is null
            order by queued.id
            limit (select $1::bigint)
        )
    ))
) as due on true
order by due.next_run_at
