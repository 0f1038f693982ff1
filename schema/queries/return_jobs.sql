-- Gives claimed jobs back to the queue (retry, snooze, release), each only if the caller's
-- claim still stands. A job that somebody asked to cancel meanwhile ends as cancelled instead.
--   $1 ids · $2 lease tokens · $3 attempts · $4 delays in seconds (null: as due as it was) ·
--   $5 errors, as text (see finish_jobs) · $6 whether the attempt is given back. Returns id and
--   the state it went to.
-- Locks: the given rows, in id order as cancel_jobs does, waiting for a heartbeat or a cancel; then
-- the schedules of fires that end here.
-- Index: primary key. The values of a row are looked up among at most a few hundred given, so
-- callers bound the batch.
with returned as materialized (
    select job.*, given.delay_s, given.error::jsonb as error, given.gives_back
    from (
        select *
        from unnest(
            $1::uuid[], $2::uuid[], $3::integer[], $4::double precision[], $5::text[],
            $6::boolean[]
        ) as unordered (id, lease_token, attempt, delay_s, error, gives_back)
        order by id
    ) as given
    cross join lateral (
        select
            owned.id, owned.lease_token, owned.run_at, owned.enqueued_at, owned.attempt,
            owned.max_attempts, owned.timeout_s, owned.priority, owned.topic, owned.kind,
            owned.unique_key, owned.payload, owned.errors, owned.cancel_requested,
            owned.schedule_id, owned.occurrence, owned.supervisor, owned.retry_of,
            owned.lineage_id, owned.lineage_no
        from chronos.jobs as owned
        where owned.id = given.id
          and owned.lease_token = given.lease_token
          and owned.attempt = given.attempt
        for update
    ) as job
),
removed as (
    delete from chronos.jobs as job
    where job.id = any (array(select returned.id from returned where returned.cancel_requested))
),
cancelled as (
    insert into chronos.job_history (
        id, lease_token, run_at, enqueued_at, state, attempt, max_attempts, timeout_s,
        priority, topic, kind, unique_key, payload, errors, schedule_id, occurrence, supervisor,
        retry_of, lineage_id, lineage_no
    )
    select
        id, lease_token, run_at, enqueued_at, 'cancelled', attempt, max_attempts, timeout_s,
        priority, topic, kind, unique_key, payload, chronos.push_error(errors, error),
        schedule_id, occurrence, supervisor, retry_of, lineage_id, lineage_no
    from returned
    where cancel_requested
    returning id
),
requeued as (
    update chronos.jobs as job
    set (state, run_at, attempt, errors) = (
            select
                case when given.delay_s > 0 then 'scheduled' else 'ready' end::chronos.job_state,
                coalesce(now() + make_interval(secs => given.delay_s), job.run_at),
                job.attempt - given.gives_back::integer,
                chronos.push_error(job.errors, given.error)
            from returned as given
            where given.id = job.id
        ),
        lease_token = null,
        lease_until = null
    where job.id = any (array(select returned.id from returned where not returned.cancel_requested))
    returning job.id, job.state, job.topic
),
noted as materialized (
    select chronos.note_fires(
        array_agg(schedule_id), array_agg(occurrence),
        array_agg('cancelled'::text), array_agg(coalesce(error, errors -> -1))
    )
    from returned
    where cancel_requested and schedule_id is not null
    having count(*) > 0
),
woken as materialized (
    select chronos.wake('chronos_returned', array(
        select requeued.topic from requeued where requeued.state = 'ready'
    ))
)
select requeued.id, requeued.state::text as state from requeued, woken
union all
select cancelled.id, 'cancelled' as state from cancelled left join noted on true
