-- Looks again at claims whose time has come: forgets those of which no job is left, and puts the
-- others off to the end of their next lease. $1 at most so many. Returns how many it forgot.
-- A token is given to jobs once, by the statement that makes its row: what has no job now has none
-- ever after. What has expired is left for reap_jobs, and stays due.
-- Locks: the claims it changes; skips those that others hold. Index: claims_pkey, then the primary
-- key of jobs.
with due as materialized (
    select claim.token, held.until
    from (
        select reviewed.token, reviewed.ids
        from chronos.claims as reviewed
        where reviewed.look_at < now()
        order by reviewed.token
        limit $1
        for update skip locked
    ) as claim
    cross join lateral (
        select min(job.lease_until) as until
        from chronos.jobs as job
        where job.id = any (claim.ids) and job.lease_token = claim.token
    ) as held
),
put_off as (
    update chronos.claims as claim
    set look_at = (select due.until from due where due.token = claim.token)
    where claim.token = any (array(select due.token from due where due.until > now()))
),
forgotten as (
    delete from chronos.claims as claim
    where claim.token = any (array(select due.token from due where due.until is null))
    returning claim.token
)
select count(*) as forgotten from forgotten
