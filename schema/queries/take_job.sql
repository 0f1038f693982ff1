-- Reads the job that was handed over, with the columns of claim_jobs, and for how long it has been
-- leased. $1 its id · $2 lease token of the offer · $3 lease in seconds
-- Nothing, if it is not ours any more or more than half of its lease is gone: a beat might be too late.
-- Locks nothing. Index: primary key.
select
    job.id, job.seq, job.topic, job.kind, job.priority, job.attempt, job.max_attempts,
    job.timeout_s, job.payload,
    0::double precision as wait_s,  -- When it was leased it had not waited at all.
    job.schedule_id, job.occurrence,
    case
        when job.supervisor is not null
        then json_build_array(job.supervisor, job.retry_of, job.lineage_id, job.lineage_no)::text
    end as line,
    $3::double precision - date_part('epoch', job.lease_until - now()) as held_s
from chronos.jobs as job
where job.id = $1
  and job.lease_token = $2
  and job.lease_until > now() + make_interval(secs => $3 / 2)
