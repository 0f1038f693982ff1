-- Moves ended jobs to the history, each only if the caller's claim still stands.
--   $1 ids · $2 lease tokens · $3 attempts · $4 final states · $5 results · $6 errors ·
--   $7 run times in seconds. Returns the ids it moved.
-- Locks: the given rows, in id order as cancel_jobs does, waiting for a heartbeat or a cancel.
-- By id, not by ctid: Postgres follows a row that a heartbeat updated after the snapshot, a ctid
-- would silently miss it.
-- Index: primary key. No `state = 'running'` here: the token implies it, and naming it lets the
-- planner walk the running index, full of dead entries (measured: 6,200 jobs/s, not 28,000).
with finished as materialized (
    select job.*, given.state, given.result, given.error, given.run_s
    from (
        select *
        from unnest(
            $1::uuid[], $2::uuid[], $3::integer[], $4::text[], $5::jsonb[], $6::jsonb[], $7::real[]
        ) as unordered (id, lease_token, attempt, state, result, error, run_s)
        order by id
    ) as given
    cross join lateral (
        select
            owned.id, owned.lease_token, owned.run_at, owned.enqueued_at, owned.attempt,
            owned.max_attempts, owned.timeout_s, owned.priority, owned.topic, owned.kind,
            owned.unique_key, owned.payload, owned.errors
        from chronos.jobs as owned
        where owned.id = given.id
          and owned.lease_token = given.lease_token
          and owned.attempt = given.attempt
        for update
    ) as job
),
removed as (
    delete from chronos.jobs as job
    where job.id = any (array(select finished.id from finished))
)
insert into chronos.job_history (
    id, lease_token, run_at, enqueued_at, state, attempt, max_attempts, timeout_s, run_s,
    priority, topic, kind, unique_key, payload, errors, result
)
select
    id, lease_token, run_at, enqueued_at, state::chronos.job_state, attempt, max_attempts,
    timeout_s, run_s, priority, topic, kind, unique_key, payload,
    chronos.push_error(errors, error), result
from finished
returning id
