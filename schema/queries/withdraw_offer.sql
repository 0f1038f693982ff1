-- Takes an offer back. $1 worker · $2 its lease token
-- Returns the worker, or nothing: a job was handed over, or it was not out. One that is older than the
-- last two hundred is not out any more: nobody looks there.
-- Locks: the row, waiting for whoever is handing a job over. Index: offers_pkey.
delete from chronos.offers as offer
where offer.number > (select latest.last_value - 200 from chronos.offer_number as latest)
  and offer.worker = $1
  and offer.token = $2
returning offer.worker
