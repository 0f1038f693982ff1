-- Kinds among the first ready jobs of each topic that no worker seen lately serves.
--   $1 jobs looked at in each topic. Returns kind and how many of them.
-- Locks nothing. Index: jobs_ready, by steps from topic to topic.
with recursive topic as (
    (
        select first.topic as name
        from chronos.jobs as first
        where first.state = 'ready'
        order by first.topic
        limit 1
    )
    union all
    select (
        select following.topic
        from chronos.jobs as following
        where following.state = 'ready' and following.topic > topic.name
        order by following.topic
        limit 1
    )
    from topic
    where topic.name is not null
),
waiting as (
    select head.kind, count(*) as jobs
    from topic
    cross join lateral (
        select job.kind, job.lease_token
        from chronos.jobs as job
        where job.state = 'ready' and job.topic = topic.name
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
