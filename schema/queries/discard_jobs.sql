-- Takes dead jobs off the dead letters: they stay in the history as cancelled. $1 ids
-- Returns the ids discarded. Locks: the history rows. Index: job_history_not_succeeded.
update chronos.job_history as history
set state = 'cancelled'
where history.id = any ($1::uuid[]) and history.state = 'dead'
returning history.id
