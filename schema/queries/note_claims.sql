-- Patrols live jobs for leases that no claim has noted, and notes them, so that they are reaped when
-- they run out. No statement of ours leaves such a row; people who write SQL may.
--   $1 only ids after this one · $2 how many jobs to walk over
-- Returns the last id walked to (null: the end was reached) and how many leases it noted.
-- Locks nothing. Index: primary key.
with walked as materialized (
    select job.id, job.lease_token, job.lease_until
    from chronos.jobs as job
    where job.id > $1
    order by job.id
    limit $2
),
noted as (
    insert into chronos.claims (token, look_at, ids)
    select walked.lease_token, min(walked.lease_until), array_agg(walked.id)
    from walked
    where walked.lease_token is not null
      and not exists (
          select
          from chronos.claims as claim
          where claim.token = walked.lease_token
      )
    group by walked.lease_token
    on conflict do nothing
    returning cardinality(ids) as jobs
)
select
    (select walked.id from walked offset $2 - 1 limit 1) as last,
    (select coalesce(sum(noted.jobs), 0) from noted) as noted
