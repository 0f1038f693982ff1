-- Brings dead jobs back to life as ready, with at least one more attempt.
-- $1 ids. Returns the ids revived. The id stays and the attempt counts on, so that id and
-- attempt remain a key for idempotent handlers. A job whose unique key is taken meanwhile
-- stays dead: the insert fails as a whole and says which key.
-- Locks: the history rows. Index: job_history_not_succeeded.
with revived as (
    delete from chronos.job_history as history
    where history.id = any ($1::uuid[]) and history.state = 'dead'
    returning history.*
),
inserted as (
    insert into chronos.jobs (
        id, topic, kind, priority, payload, attempt, max_attempts, timeout_s, unique_key,
        errors, enqueued_at, schedule_id, occurrence, supervisor, retry_of, lineage_id, lineage_no
    )
    select
        id, topic, kind, priority, payload, attempt,
        greatest(max_attempts, attempt + 1), timeout_s, unique_key, errors, enqueued_at,
        schedule_id, occurrence, supervisor, retry_of, lineage_id, lineage_no
    from revived
    returning id, topic
),
woken as materialized (
    select chronos.wake('chronos_ready', array(select inserted.topic from inserted))
)
select inserted.id from inserted, woken
