-- Depth and oldest age per topic, at a bounded cost: no count goes past its bound.
--   $1 the bound. Returns topic, state, jobs, whether the count stopped at the bound, and the
--   age of the oldest in seconds (scheduled: how far the most overdue lies back, if any does).
-- The bound on scheduled jobs is one for all topics: past it, none of their counts is exact.
-- Locks nothing. Index: jobs_ready by steps from topic to topic, jobs_scheduled, and the primary key
-- for what was claimed.
-- Each step tells the first job of its topic, and what follows begins there: while an old snapshot is
-- held a million dead entries may lie before it, and each walk over them takes a quarter of a second
-- (measured: 248 ms with one walk, 710 with three).
-- The orders keep the planner from reading the table from its start until enough rows turned up.
-- A limit that it can see invites it to read and sort all there is when it has no statistics
-- (measured: 1 s instead of 50 ms), so the limits hide in subselects.
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
)
select
    topic.name as topic, 'ready' as state, least(depth.jobs, $1) as jobs,
    depth.jobs > $1 as is_bound,
    extract(epoch from now() - oldest.run_at)::double precision as oldest_s
from topic
cross join lateral (
    select count(*) as jobs
    from (
        select
        from (
            -- What runs stands in this index, too. Left out in here, the planner would guess that
            -- next to nothing remains, read all of it and sort.
            select job.lease_token
            from chronos.jobs as job
            where job.state = 'ready' and job.topic = topic.name
              and (job.priority, job.seq) >= (topic.priority, topic.seq)
            order by job.priority, job.seq
            offset 0
        ) as due
        where due.lease_token is null
        limit (select $1::bigint + 1)
    ) as counted
) as depth
cross join lateral (
    select min(head.run_at) as run_at
    from generate_series(topic.priority, 9) as level (priority)
    cross join lateral (
        select job.run_at
        from chronos.jobs as job
        where job.state = 'ready' and job.lease_token is null and job.topic = topic.name
          and job.priority = level.priority::smallint
          and job.seq >= case when level.priority = topic.priority then topic.seq else 0 end
        order by job.seq
        limit 1
    ) as head
) as oldest
where depth.jobs > 0
union all
select
    counted.topic, 'scheduled', least(count(*), $1), sum(count(*)) over () > $1,
    extract(epoch from now() - min(counted.run_at))::double precision
from (
    select job.topic, job.run_at
    from chronos.jobs as job
    where job.state = 'scheduled'
    order by job.run_at
    limit (select $1::bigint + 1)
) as counted
group by counted.topic
union all
select job.topic, 'running', count(*), false, null
from chronos.jobs as job
where job.id = any (array(select unnest(claim.ids) from chronos.claims as claim))
  and job.lease_token is not null
group by job.topic
