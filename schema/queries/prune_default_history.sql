-- Retention for rows in the default partition, which no day owns. $1 age in seconds · $2 limit
with removed as (
    delete from chronos.job_history_default as history
    where history.ctid = any (array(
        select old.ctid
        from chronos.job_history_default as old
        where old.finished_at < now() - make_interval(secs => $1)
        limit $2
        for update skip locked
    ))
    returning history.id
)
select count(*) as removed from removed
