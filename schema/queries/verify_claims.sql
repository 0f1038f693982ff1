-- Says what became of claims whose write matched no row, with a snapshot of its own.
--   $1 ids · $2 lease tokens · $3 attempts · $4 this worker, as written into errors
-- Verdict: owned (the claim stands: write again) · applied (an earlier try of this very write
-- succeeded and its reply was lost) · stale (the claim was lost). Also the token now on record.
-- A reaped claim leaves the same traces as a reported failure, but for the type of its error.
-- Locks nothing. Index: primary key, job_history_id.
select
    given.id,
    case
        when live.lease_token = given.lease_token and live.attempt = given.attempt then 'owned'
        when coalesce(live.errors, done.errors) -> -1 @> jsonb_build_object(
            'type', 'LeaseExpired', 'attempt', given.attempt
        ) then 'stale'
        when done.lease_token = given.lease_token and done.attempt = given.attempt then 'applied'
        when live.id is not null and live.lease_token is null and (
            live.attempt = given.attempt - 1
            or (live.attempt = given.attempt and live.errors -> -1 ->> 'worker' = $4)
        ) then 'applied'
        else 'stale'
    end as verdict,
    coalesce(live.lease_token, done.lease_token) as current_token
from unnest($1::uuid[], $2::uuid[], $3::integer[]) as given (id, lease_token, attempt)
left join lateral (
    select job.id, job.lease_token, job.attempt, job.errors
    from chronos.jobs as job
    where job.id = given.id
) as live on true
left join lateral (
    select history.lease_token, history.attempt, history.errors
    from chronos.job_history as history
    where history.id = given.id
    order by history.finished_at desc
    limit 1
) as done on true
