-- Inserts the next attempt of a task that ended as failed: a new task like it, linked to it.
--   $1 the failed task · $2 id of the new one · $3 its payload, as text (null: the same) ·
--   $4 delay in seconds
-- Returns its id; nothing where that task did not end as failed, or where its unique key was taken
-- this very moment. The key goes along while nobody else bears it: it was free since the end. The
-- clock is the statement's, and it notifies, as in enqueue_job.
-- Locks: waits for whoever is inserting that key. Index: job_history_not_succeeded.
insert into chronos.jobs as job (
    id, topic, kind, priority, payload, state, run_at, enqueued_at, max_attempts, timeout_s,
    unique_key, schedule_id, occurrence, supervisor, retry_of, lineage_id, lineage_no
)
select
    $2, failed.topic, failed.kind, failed.priority, coalesce($3::text::jsonb, failed.payload),
    case when $4::double precision > 0 then 'scheduled' else 'ready' end::chronos.job_state,
    statement_timestamp() + make_interval(secs => $4), statement_timestamp(),
    failed.max_attempts, failed.timeout_s,
    case
        when not exists (
            select from chronos.jobs as holder where holder.unique_key = failed.unique_key
        ) then failed.unique_key
    end,
    failed.schedule_id, failed.occurrence, failed.supervisor, failed.id,
    coalesce(failed.lineage_id, failed.id), coalesce(failed.lineage_no, 1) + 1
from chronos.job_history as failed
where failed.id = $1 and failed.state = 'failed'
order by failed.finished_at desc
limit 1
on conflict do nothing
returning
    job.id,
    case
        when job.run_at < statement_timestamp() + interval '15 seconds'
            and exists (select from chronos.idle_marks as mark where mark.topic = job.topic)
        then pg_notify(
            case job.state when 'ready' then 'chronos_ready' else 'chronos_due' end, job.topic
        )
    end as woken
