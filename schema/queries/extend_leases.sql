-- One beat: extends the leases of all given claims that still stand.
--   $1 ids · $2 lease tokens · $3 attempts · $4 lease in seconds
-- Returns the ids still owned and whether somebody asked to cancel them. Skips a row that is
-- locked (its own finish, most likely, and then it needs no extension), so it never waits and
-- never deadlocks; an id it does not return is lost only when verify_claims says so.
-- Index: primary key; the update is HOT because no index holds a lease column.
update chronos.jobs as job
set lease_until = now() + make_interval(secs => $4)
where job.id = any (array(
    select owned.id
    from unnest($1::uuid[], $2::uuid[], $3::integer[]) as given (id, lease_token, attempt)
    cross join lateral (
        select claimed.id
        from chronos.jobs as claimed
        where claimed.id = given.id
          and claimed.lease_token = given.lease_token
          and claimed.attempt = given.attempt
        for update skip locked
    ) as owned
))
returning job.id, job.cancel_requested
