-- Takes an offer back. $1 worker · $2 its lease token
-- Returns the worker, or nothing: a job was handed over, or it was not out.
-- Locks: the row, waiting for whoever is handing a job over. Index: offers_pkey.
update chronos.offers as offer
set token = null
where offer.worker = $1 and offer.token = $2
returning offer.worker
