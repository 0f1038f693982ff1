-- Inserts one job, as enqueue_jobs does many. Arrays of one cost three times as much (measured: 110
-- µs beyond a bare insert, not 30).
--   $1 id · $2 topic · $3 kind · $4 priority · $5 payload, as text · $6 run_at (null: by delay) ·
--   $7 delay in seconds (null: at once) · $8 max attempts · $9 timeout · $10 unique key ·
--   $11 supervisor
-- Returns its id, or nothing if its id or unique key is taken by a live job. Waits for whoever is
-- inserting that key. Notifies as chronos.wake does, but for one topic needs not call it, which
-- would be a fifth of the whole statement.
insert into chronos.jobs as job (
    id, topic, kind, priority, payload, state, run_at, enqueued_at, max_attempts, timeout_s,
    unique_key, supervisor
)
select
    $1, $2, $3, $4::smallint, $5::text::jsonb,
    case when given.due_at > statement_timestamp() then 'scheduled' else 'ready' end
        ::chronos.job_state,
    given.due_at, statement_timestamp(), $8::integer, $9::real, $10,
    $11
from (
    select coalesce(
        $6::timestamptz,
        statement_timestamp() + make_interval(secs => coalesce($7::double precision, 0))
    ) as due_at
) as given
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
