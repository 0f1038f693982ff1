-- The ids of expired leases, for stepping over rows that cannot be reaped together.
--   $1 only ids after this one · $2 at most this many. Locks nothing. Index: jobs_running.
select job.id
from chronos.jobs as job
where job.state = 'running' and job.lease_until < now() and job.id > $1
order by job.id
limit $2
