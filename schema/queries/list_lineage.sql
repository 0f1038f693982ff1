-- The attempts of one line, the first one first. $1 the id of any of them · $2 at most this many
-- Locks nothing. Index: primary key and jobs_lineage, job_history_id and job_history_lineage.
with line as materialized (
    select coalesce(one.lineage_id, one.id) as id
    from chronos.all_jobs as one
    where one.id = $1
    order by one.finished_at desc nulls first
    limit 1
),
member as (
    select live.id from chronos.jobs as live where live.lineage_id = (select line.id from line)
    union all
    select done.id
    from chronos.job_history as done
    where done.lineage_id = (select line.id from line)
    union all
    select line.id from line
)
select
    id, state::text as state, topic, kind, priority, attempt, max_attempts, timeout_s,
    unique_key, payload, result, errors, run_at, enqueued_at, lease_token, lease_until,
    cancel_requested, finished_at, run_s, schedule_id, occurrence, supervisor, retry_of,
    lineage_id, lineage_no
from chronos.all_jobs
where id = any (array(select member.id from member))
  -- An id may have been used again, for a job of no line.
  and (select line.id from line) in (id, lineage_id)
order by coalesce(lineage_no, 1), finished_at nulls last, id
limit (select $2::bigint)
