-- Marks schedules that cannot be evaluated or fired as broken, unless they were edited meanwhile.
--   $1 ids · $2 versions · $3 errors. Returns the ids marked.
-- Locks: the schedules, in id order. Index: primary key. An edit mends them.
update chronos.schedules as schedule
set status = 'broken', broken_error = ($3::text[])[array_position($1::uuid[], schedule.id)],
    next_run_at = null, queued_at = null, updated_at = now()
where schedule.id = any (array(
    select owned.id
    from (
        select * from unnest($1::uuid[], $2::bigint[]) as unordered (id, version) order by id
    ) as given
    cross join lateral (
        select row.id
        from chronos.schedules as row
        where row.id = given.id and row.version = given.version and row.status = 'active'
        for update
    ) as owned
))
returning schedule.id
