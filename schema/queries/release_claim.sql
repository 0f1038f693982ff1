-- Gives back, attempt and all, whatever a claim took whose reply was lost. $1 its lease token
-- Returns how many. Locks: those rows, in id order. Index: claims_pkey, then the primary key.
with released as (
    update chronos.jobs as job
    set attempt = job.attempt - 1, lease_token = null, lease_until = null
    where job.id = any (array(
        select held.id
        from (
            select given.id
            from chronos.claims as claim
            cross join unnest(claim.ids) as given (id)
            where claim.token = $1
            order by given.id
        ) as claimed
        cross join lateral (
            select owned.id
            from chronos.jobs as owned
            where owned.id = claimed.id and owned.lease_token = $1
            for update
        ) as held
    ))
    returning job.topic
),
forgotten as (
    delete from chronos.claims as claim
    where claim.token = $1
)
select
    count(*) as released, chronos.wake('chronos_returned', array_agg(released.topic)) as woken
from released
