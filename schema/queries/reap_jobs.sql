-- Takes back jobs whose lease ran out, or that a worker known to be dead was holding, through
-- one branch: ready again, dead after the last attempt (failed, if supervised), cancelled where
-- that was asked for.
--   $1 first and $2 last lease token of a dead worker (both null: only expired leases) ·
--   $3 only ids after this one · $4 at most this many
-- Fenced by its own predicate under the row lock: a job that finished meanwhile is not touched,
-- one just extended is not either. Any number of processes may reap at once: locked rows are
-- skipped; the schedules of fires that end here are waited for. Looks at the claims whose time has
-- come, then by the primary key, in id order, so that a caller can step over a row that fails.
with expired as materialized (
    select
        job.id, job.lease_token, job.run_at, job.enqueued_at, job.attempt, job.max_attempts,
        job.timeout_s, job.priority, job.topic, job.kind, job.unique_key, job.payload,
        job.schedule_id, job.occurrence, job.supervisor, job.retry_of, job.lineage_id,
        job.lineage_no,
        chronos.push_error(job.errors, jsonb_build_object(
            'type', 'LeaseExpired', 'message', 'worker lease expired', 'attempt', job.attempt,
            'worker', left(job.lease_token::text, 18)
        )) as errors,
        case
            when job.cancel_requested then 'cancelled'
            when job.attempt < job.max_attempts then 'ready'
            when job.supervisor is null then 'dead'
            else 'failed'
        end as next_state
    from (
        select given.id, claim.token
        from chronos.claims as claim
        cross join unnest(claim.ids) as given (id)
        where (claim.look_at < now() or claim.token between $1 and $2) and given.id > $3
        order by given.id
    ) as claimed
    cross join lateral (
        select *
        from chronos.jobs as held
        where held.id = claimed.id
          and held.lease_token = claimed.token
          and (held.lease_until < now() or held.lease_token between $1 and $2)
        for update skip locked
    ) as job
    limit $4
),
removed as (
    delete from chronos.jobs as job
    where job.id = any (array(select expired.id from expired where expired.next_state <> 'ready'))
),
ended as (
    insert into chronos.job_history (
        id, lease_token, run_at, enqueued_at, state, attempt, max_attempts, timeout_s,
        priority, topic, kind, unique_key, payload, errors, schedule_id, occurrence, supervisor,
        retry_of, lineage_id, lineage_no
    )
    select
        id, lease_token, run_at, enqueued_at, next_state::chronos.job_state, attempt,
        max_attempts, timeout_s, priority, topic, kind, unique_key, payload, errors,
        schedule_id, occurrence, supervisor, retry_of, lineage_id, lineage_no
    from expired
    where next_state <> 'ready'
),
revived as (
    update chronos.jobs as job
    set lease_token = null,
        lease_until = null,
        errors = (select expired.errors from expired where expired.id = job.id)
    where job.id = any (array(select expired.id from expired where expired.next_state = 'ready'))
),
noted as materialized (
    select chronos.note_fires(
        array_agg(schedule_id), array_agg(occurrence), array_agg(next_state),
        array_agg(errors -> -1)
    )
    from expired
    where next_state <> 'ready' and schedule_id is not null
    having count(*) > 0
),
told as materialized (
    select chronos.tell_supervisors(array_agg(id), array_agg(attempt), array_agg(supervisor))
    from expired
    where next_state = 'failed' and supervisor <> ''
    having count(*) > 0
),
woken as materialized (
    select chronos.wake('chronos_returned', array(
        select expired.topic from expired where expired.next_state = 'ready'
    ))
)
select expired.id, expired.topic, expired.kind, expired.attempt, expired.lease_token, next_state
from woken, expired left join noted on true left join told on true
order by expired.id
