-- Moves ended jobs to the history, each only if the caller's claim still stands.
--   $1 ids, ascending · $2 lease tokens · $3 for each token, the place in $1 of the first id it
--   holds for · $4 run times in seconds · $5 final states (null: all succeeded) · $6 results ·
--   $7 errors (null: no job has one) · $8 whether any of them is a fire. JSON goes as text: a handler
--   may have given the connection of its transaction a way of its own to encode jsonb.
-- Returns the ids it moved; null when it moved all of them, as it nearly always does.
-- The token is of one claim, so it stands for the attempt too. What is given for a row is found
-- by its place among the ids, a binary search (width_bucket): a join of the rows with the given
-- would need them locked first, or the planner may turn it round (measured: 11 µs a job, not 6).
-- Locks: the given rows, in id order as cancel_jobs does, waiting for a heartbeat or a cancel:
-- Postgres follows a row that was updated after the snapshot and looks at the token again. Then
-- the schedules of what was a fire (chronos.note_fires). Facts for the supervisors of tasks that failed
-- go in with it (chronos.tell_supervisors). Where there is no fire, or all succeeded, nobody even looks:
-- to read what was removed once more costs 0.4 µs a job.
-- Index: primary key.
with removed as (
    delete from chronos.jobs as job
    where job.id = any ($1::uuid[])
      and job.lease_token = ($2::uuid[])[
          width_bucket(width_bucket(job.id, $1::uuid[]), $3::integer[])
      ]
    returning job.*, width_bucket(job.id, $1::uuid[]) as place
),
moved as (
    insert into chronos.job_history (
        id, lease_token, run_at, enqueued_at, state, attempt, max_attempts, timeout_s, run_s,
        priority, topic, kind, unique_key, payload, errors, result, schedule_id, occurrence,
        supervisor, retry_of, lineage_id, lineage_no
    )
    select
        id, lease_token, run_at, enqueued_at,
        -- Not coalesce(…)::job_state, which looks the state's name up for each job.
        case
            when $5::text[] is null then 'succeeded'
            else ($5::text[])[place]::chronos.job_state
        end,
        attempt, max_attempts, timeout_s, ($4::real[])[place], priority, topic, kind, unique_key, payload,
        chronos.push_error(errors, ($7::text[])[place]::jsonb), ($6::text[])[place]::jsonb,
        schedule_id, occurrence, supervisor, retry_of, lineage_id, lineage_no
    from removed
),
noted as materialized (
    select chronos.note_fires(
        array_agg(schedule_id), array_agg(occurrence),
        array_agg(coalesce(($5::text[])[place], 'succeeded')),
        array_agg(coalesce(($7::text[])[place]::jsonb, errors -> -1))
    )
    from removed
    where $8::boolean and schedule_id is not null
    having count(*) > 0
),
told as materialized (
    select chronos.tell_supervisors(array_agg(id), array_agg(attempt), array_agg(supervisor))
    from removed
    where $5::text[] is not null and supervisor <> '' and ($5::text[])[place] = 'failed'
    having count(*) > 0
)
select
    case when count(*) < cardinality($1) then array(select removed.id from removed) end as moved,
    (select count(*) from noted) as noted, (select count(*) from told) as told
from removed
