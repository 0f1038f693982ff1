-- Reads jobs by id, live or ended. $1 ids. Of an id that was used again the newest comes last,
-- the live one after all. Locks nothing. Index: primary key, job_history_id.
select
    id, state::text as state, topic, kind, priority, attempt, max_attempts, timeout_s,
    unique_key, payload, result, errors, run_at, enqueued_at, lease_token, lease_until,
    cancel_requested, finished_at, run_s, schedule_id, occurrence, supervisor, retry_of,
    lineage_id, lineage_no
from chronos.all_jobs
where id = any ($1::uuid[])
order by finished_at nulls last
