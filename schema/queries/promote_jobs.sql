-- Makes due scheduled jobs ready. $1 at most this many.
-- Returns how many, and the seconds until the next one is due (null: nothing is scheduled).
-- Locks: the rows it promotes; skips locked ones. Index: jobs_scheduled, then primary key.
-- The limit hides in a subselect: one the planner sees makes it sort everything that is due
-- when it has no statistics.
with promoted as (
    update chronos.jobs as job
    set state = 'ready'
    where job.id = any (array(
        select due.id
        from chronos.jobs as due
        where due.state = 'scheduled' and due.run_at <= now()
        order by due.run_at
        limit (select $1::bigint)
        for update skip locked
    ))
    returning job.topic
),
woken as materialized (
    select chronos.wake('chronos_returned', array(select promoted.topic from promoted))
)
select
    (select count(*) from promoted) as promoted,
    (
        select extract(epoch from next.run_at - now())::double precision
        from chronos.jobs as next
        where next.state = 'scheduled' and next.run_at > now()
        order by next.run_at
        limit 1
    ) as next_due_s
from woken
