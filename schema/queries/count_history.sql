-- Jobs in the history by final state: exact up to a bound for what did not succeed, and the
-- planner's estimate for all of it. $1 the bound. Index: job_history_not_succeeded; without the
-- order, a planner without statistics reads the whole history.
select
    (
        select count(*) from (
            select from chronos.job_history as history
            where history.state <> 'succeeded' and history.state = 'dead'
            order by history.id
            limit (select $1::bigint + 1)
        ) as counted
    ) as dead,
    (
        select count(*) from (
            select from chronos.job_history as history
            where history.state <> 'succeeded' and history.state = 'cancelled'
            order by history.id
            limit (select $1::bigint + 1)
        ) as counted
    ) as cancelled,
    (
        select count(*) from (
            select from chronos.job_history as history
            where history.state <> 'succeeded' and history.state = 'failed'
            order by history.id
            limit (select $1::bigint + 1)
        ) as counted
    ) as failed,
    (
        select coalesce(sum(greatest(part.reltuples, 0)), 0)::bigint
        from pg_catalog.pg_inherits as link
        join pg_catalog.pg_class as part on part.oid = link.inhrelid
        where link.inhparent = 'chronos.job_history'::regclass
    ) as history_estimate
