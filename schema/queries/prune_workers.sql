-- Drops presence and marks nobody refreshed, and the offers of whoever was not seen. $1 age in seconds
with unmarked as (
    delete from chronos.idle_marks as mark
    where mark.marked_at < now() - make_interval(secs => $1)
),
withdrawn as (
    delete from chronos.offers as offer
    where offer.offered_at < now() - make_interval(secs => $1)
      and not exists (
          select
          from chronos.workers as seen
          where seen.id = offer.worker and seen.seen_at >= now() - make_interval(secs => $1)
      )
)
delete from chronos.workers as worker
where worker.seen_at < now() - make_interval(secs => $1)
