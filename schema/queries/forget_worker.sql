-- A worker that leaves takes its presence, its marks and its offer along. $1 worker
with unmarked as (
    delete from chronos.idle_marks as mark where mark.worker = $1
),
withdrawn as (
    delete from chronos.offers as offer where offer.worker = $1
)
delete from chronos.workers as worker where worker.id = $1
