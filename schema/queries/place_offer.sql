-- Offers to take one job at once.
--   $1 worker · $2 lease token of the job · $3 presence: the advisory lock its listener holds ·
--   $4 lease in seconds · $5 topics · $6 kinds · $7 tokens of claims that are over: no job has them
-- Does not wait for the disk: a crash that forgets an offer also ends the session that hears of it.
-- Locks: the claims it forgets, which are the worker's own. Index: claims_pkey.
with forgotten as (
    delete from chronos.claims as claim
    where claim.token = any ($7::uuid[])
)
insert into chronos.offers (worker, token, presence, lease_s, topics, kinds)
select $1, $2, $3, $4, $5, $6
where set_config('synchronous_commit', 'off', true) = 'off'
