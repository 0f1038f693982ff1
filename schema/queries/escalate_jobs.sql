-- Puts tasks that ended as failed with the dead letters, for people to decide about. $1 ids
-- Returns the ids escalated. Locks: the history rows. Index: job_history_not_succeeded.
update chronos.job_history as history
set state = 'dead'
where history.id = any ($1::uuid[]) and history.state = 'failed'
returning history.id
