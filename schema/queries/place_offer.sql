-- Offers to take one job at once, in the place of whatever this worker offered before.
--   $1 worker · $2 lease token of the job · $3 presence: the advisory lock its listener holds ·
--   $4 lease in seconds · $5 topics · $6 kinds · $7 tokens of claims that are over: no job has them
-- Does not wait for the disk: a crash that forgets an offer also ends the session that hears of it.
-- Locks: the worker's own row. Index: offers_pkey, claims_pkey.
with forgotten as (
    delete from chronos.claims as claim
    where claim.token = any ($7::uuid[])
)
insert into chronos.offers as offer (worker, token, presence, lease_s, topics, kinds)
select $1, $2, $3, $4, $5, $6
where set_config('synchronous_commit', 'off', true) = 'off'
on conflict (worker) do update
set token = excluded.token, presence = excluded.presence, lease_s = excluded.lease_s,
    topics = excluded.topics, kinds = excluded.kinds, offered_at = excluded.offered_at
