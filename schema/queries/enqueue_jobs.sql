-- Inserts jobs; one whose id or unique key is taken by a live job is left out.
--   $1 ids · $2 topics · $3 kinds · $4 priorities · $5 payloads · $6 run_at (null: by delay) ·
--   $7 delays in seconds (null: at once) · $8 max attempts · $9 timeouts · $10 unique keys ·
--   $11 supervisors (null: no job has one)
-- Payloads come as text: the caller's connection may have a jsonb codec of its own.
-- Returns the ids inserted. The clock is the statement's, not the transaction's: in a caller's
-- long transaction now() would lie in the past. Wakes idle workers of these topics, and the
-- scheduler of whoever is idle when something falls due before it would look by itself (15 s).
-- Locks: waits for whoever is inserting a key it was given, so it inserts in the order of the
-- keys, or two batches could wait for each other; seq is drawn before, in the order given.
with given as materialized (
    select
        unordered.*, nextval('chronos.job_seq') as seq,
        coalesce(
            unordered.run_at,
            statement_timestamp() + make_interval(secs => coalesce(unordered.delay_s, 0))
        ) as due_at
    from unnest(
        $1::uuid[], $2::text[], $3::text[], $4::smallint[], $5::text[], $6::timestamptz[],
        $7::double precision[], $8::integer[], $9::real[], $10::text[], $11::text[]
    ) as unordered (
        id, topic, kind, priority, payload, run_at, delay_s, max_attempts, timeout_s, unique_key,
        supervisor
    )
),
inserted as (
    insert into chronos.jobs (
        id, seq, topic, kind, priority, payload, state, run_at, enqueued_at, max_attempts,
        timeout_s, unique_key, supervisor
    )
    select
        id, seq, topic, kind, priority, payload::jsonb,
        case when due_at > statement_timestamp() then 'scheduled' else 'ready' end
            ::chronos.job_state,
        due_at, statement_timestamp(), max_attempts, timeout_s, unique_key, supervisor
    from given
    order by unique_key, seq
    on conflict do nothing
    returning id, topic, state, run_at
),
woken as materialized (
    select
        chronos.wake('chronos_ready', array(
            select inserted.topic from inserted where inserted.state = 'ready'
        )),
        chronos.wake('chronos_due', array(
            select inserted.topic from inserted
            where inserted.state = 'scheduled'
              and inserted.run_at < statement_timestamp() + interval '15 seconds'
        ))
)
select inserted.id from inserted, woken
