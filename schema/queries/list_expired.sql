-- The ids of expired leases, for stepping over rows that cannot be reaped together.
--   $1 only ids after this one · $2 at most this many
-- Locks nothing. Looks at the claims whose time has come, then by the primary key.
select job.id
from chronos.jobs as job
where job.id = any (array(
    select given.id
    from chronos.claims as claim
    cross join unnest(claim.ids) as given (id)
    where claim.look_at < now() and given.id > $1
))
  and job.lease_until < now()
order by job.id
limit $2
