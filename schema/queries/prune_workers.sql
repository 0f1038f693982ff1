-- Drops presence and marks nobody refreshed. $1 age in seconds
with unmarked as (
    delete from chronos.idle_marks as mark
    where mark.marked_at < now() - make_interval(secs => $1)
)
delete from chronos.workers as worker
where worker.seen_at < now() - make_interval(secs => $1)
