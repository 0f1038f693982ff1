-- The live jobs that hold the given unique keys. $1 keys. Index: jobs_unique_key.
select job.unique_key, job.id
from chronos.jobs as job
where job.unique_key = any ($1::text[])
