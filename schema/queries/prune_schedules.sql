-- Retention for finished schedules and ended alarms. $1 age in seconds · $2 limit
-- What an app's code made is kept: made again, it would fire again. Returns how many went.
-- Locks: those rows; skips locked ones. Index: schedules_ended, which is as
-- long as what is kept for audit; by id, so that the end of a fire is a HOT update.
with removed as (
    delete from chronos.schedules as schedule
    where schedule.id = any (array(
        select old.id
        from chronos.schedules as old
        where old.status not in ('active', 'broken') and old.origin is null
          and old.updated_at < now() - make_interval(secs => $1)
        order by old.id
        limit (select $2::bigint)
        for update skip locked
    ))
    returning schedule.id
)
select count(*) as removed from removed
