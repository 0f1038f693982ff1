-- A claim gets a row of its own, and a claimed job keeps its places in the indexes.
--
-- So far a claim wrote `state = 'running'`. Indexes tell states apart, so each claimed row was a new
-- version with a new entry in the primary key and one more in an index of what runs: two fifths of
-- the claim's time. Now a job runs if it has a lease, and no index knows of leases; the claim is a
-- HOT update (measured: 5.4 µs of the server's time for a job, before 7.5; WAL 450 bytes, before
-- 519). What runs is found by the rows below, one for each claim, with the ids it took.
--
-- They are where to look, not what is true: the lease is in the job's row, and every write is fenced
-- by it. For each job with a lease there is the row of its token, whose look_at is not later than
-- the lease's end. A row outlives its jobs by a while: the claimer deletes those of its claims that
-- are over with its next claim, the janitor whatever the dead left behind.
create table chronos.claims (
    token uuid primary key,
    -- Before this none of the leases ends, so nobody looks.
    look_at timestamptz not null,
    ids uuid[] not null
)
with (
    fillfactor = 70,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);

-- Thousands of ids at a time, for a moment: not worth compressing.
alter table chronos.claims alter column ids set storage external;

-- First of all, for its lock: nobody claims from here on.
alter table chronos.jobs
    drop constraint jobs_running_has_lease,
    drop constraint jobs_state_is_live;

insert into chronos.claims (token, look_at, ids)
select job.lease_token, min(job.lease_until), array_agg(job.id)
from chronos.jobs as job
where job.state = 'running'
group by job.lease_token;

update chronos.jobs set state = 'ready' where state = 'running';

-- Not valid: what is there already is right. A worker of the version before cannot claim any more;
-- what it runs it may finish.
alter table chronos.jobs
    add constraint jobs_state_waits check (state in ('scheduled', 'ready')) not valid,
    add constraint jobs_lease_is_whole check (
        (lease_token is null) = (lease_until is null)
        and (lease_token is null or state = 'ready')
    ) not valid;

drop index chronos.jobs_running;

-- No claim adds to it any more.
alter index chronos.jobs_pkey reset (fillfactor, deduplicate_items);

create or replace view chronos.all_jobs as
select
    id, case when lease_token is null then state else 'running' end as state, topic, kind,
    priority, attempt, max_attempts, timeout_s, unique_key, payload,
    null::jsonb as result, errors, run_at, enqueued_at, lease_token, lease_until,
    cancel_requested, null::timestamptz as finished_at, null::real as run_s,
    schedule_id, occurrence, supervisor, retry_of, lineage_id, lineage_no
from chronos.jobs
union all
select
    id, state, topic, kind, priority, attempt, max_attempts, timeout_s, unique_key, payload,
    result, errors, run_at, enqueued_at, lease_token, null::timestamptz as lease_until,
    false as cancel_requested, finished_at, run_s, schedule_id, occurrence, supervisor, retry_of,
    lineage_id, lineage_no
from chronos.job_history;
