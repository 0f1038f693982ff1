-- Kinds among the first ready jobs of each topic that no worker seen lately serves.
--   $1 jobs looked at in each topic. Returns kind and how many of them.
-- Locks nothing. Index: jobs_ready, by steps from topic to topic, each to its first job, where the
-- look begins: dead entries before it are walked over once.
with recursive topic as (
    (
        select first.topic as name, first.priority, first.seq
        from chronos.jobs as first
        where first.state = 'ready'
        order by first.topic, first.priority, first.seq
        limit 1
    )
    union all
    select following.topic, following.priority, following.seq
    from topic
    cross join lateral (
        select job.topic, job.priority, job.seq
        from chronos.jobs as job
        where job.state = 'ready' and job.topic > topic.name
        order by job.topic, job.priority, job.seq
        limit 1
    ) as following
),
waiting as (
    select head.kind, count(*) as jobs
    from topic
    cross join lateral (
        select job.kind, job.lease_token
        from chronos.jobs as job
        where job.state = 'ready' and job.topic = topic.name
          and (job.priority, job.seq) >= (topic.priority, topic.seq)
        order by job.priority, job.seq
        limit (select $1::bigint)
    ) as head
    where head.lease_token is null
    group by head.kind
)
select waiting.kind, waiting.jobs
from waiting
where not exists (
    select
    from chronos.workers as worker
    where waiting.kind = any (worker.kinds) and worker.seen_at > now() - interval '3 minutes'
)
