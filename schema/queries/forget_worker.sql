-- A worker that leaves takes its presence and its marks along. $1 worker
with unmarked as (
    delete from chronos.idle_marks as mark where mark.worker = $1
)
delete from chronos.workers as worker where worker.id = $1
