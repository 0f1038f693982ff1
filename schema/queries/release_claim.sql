-- Gives back, attempt and all, whatever a claim took whose reply was lost. $1 its lease token
-- Returns how many. Locks: those rows, in id order. Index: jobs_running (as long as what is
-- running), then the primary key.
with released as (
    update chronos.jobs as job
    set state = 'ready', attempt = job.attempt - 1, lease_token = null, lease_until = null
    where job.id = any (array(
        select claimed.id
        from chronos.jobs as claimed
        where claimed.state = 'running' and claimed.lease_token = $1
        order by claimed.id
        for update
    ))
    returning job.topic
)
select
    count(*) as released, chronos.wake('chronos_returned', array_agg(released.topic)) as woken
from released
