-- Gives back, attempt and all, whatever a claim took whose reply was lost. $1 its lease token
-- Returns how many. Locks: those rows. Index: jobs_running (as long as what is running).
with released as (
    update chronos.jobs as job
    set state = 'ready', attempt = job.attempt - 1, lease_token = null, lease_until = null
    where job.state = 'running' and job.lease_token = $1
    returning job.topic
)
select
    count(*) as released, chronos.wake('chronos_returned', array_agg(released.topic)) as woken
from released
