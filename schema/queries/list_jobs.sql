-- One page of jobs, newest id first (ids are made in order of time).
--   $1 states (null: all) · $2 topic (null: all) · $3 kind (null: all) · $4 only ids below this
--   one (null: from the newest) · $5 page size
-- Locks nothing. Picks ids along four indexes that are in id order, each only where one of its
-- states is wanted, then reads those: the claims' ids · primary key · job_history_not_succeeded ·
-- job_history_id. So a page of dead letters costs a page, whatever the backlog; what a topic or
-- a kind filters out is walked over. coalesce (true where no filter is given) and the limits in
-- subselects keep the planner from guessing how few rows there are and sorting the whole table
-- (measured with a million jobs waiting: 1 to 2 s instead of 1 ms).
select
    id, state::text as state, topic, kind, priority, attempt, max_attempts, timeout_s,
    unique_key, payload, result, errors, run_at, enqueued_at, lease_token, lease_until,
    cancel_requested, finished_at, run_s, schedule_id, occurrence, supervisor, retry_of,
    lineage_id, lineage_no
from chronos.all_jobs
where id = any (array(
    (
        select job.id
        from chronos.jobs as job
        where job.id = any (array(
            select unnest(claim.ids)
            from chronos.claims as claim
            where coalesce('running' = any ($1::text[]), true)
        ))
          and job.lease_token is not null
          and coalesce(job.topic = $2, true) and coalesce(job.kind = $3, true)
          and job.id < coalesce($4::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
        order by job.id desc
        limit (select $5::bigint)
    )
    union all
    (
        select job.id
        from chronos.jobs as job
        where job.lease_token is null and coalesce($1 && '{scheduled,ready}', true)
          and coalesce(job.state::text = any ($1), true)
          and coalesce(job.topic = $2, true) and coalesce(job.kind = $3, true)
          and job.id < coalesce($4::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
        order by job.id desc
        limit (select $5::bigint)
    )
    union all
    (
        select history.id
        from chronos.job_history as history
        where history.state <> 'succeeded' and coalesce($1 && '{dead,failed,cancelled}', true)
          and coalesce(history.state::text = any ($1), true)
          and coalesce(history.topic = $2, true) and coalesce(history.kind = $3, true)
          and history.id < coalesce($4::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
        order by history.id desc
        limit (select $5::bigint)
    )
    union all
    (
        select history.id
        from chronos.job_history as history
        where history.state not in ('dead', 'failed', 'cancelled')
          and coalesce('succeeded' = any ($1), true)
          and coalesce(history.topic = $2, true) and coalesce(history.kind = $3, true)
          and history.id < coalesce($4::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
        order by history.id desc
        limit (select $5::bigint)
    )
    order by id desc
    limit (select $5::bigint)
))
  and coalesce(state::text = any ($1), true)
  and coalesce(topic = $2, true) and coalesce(kind = $3, true)
order by id desc
limit (select $5::bigint)
