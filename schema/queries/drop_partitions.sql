-- Drops the history of days that ended more than $1 seconds ago; the partitions dropped.
select dropped.name
from chronos.drop_history_partitions(now() - make_interval(secs => $1)) as dropped (name)
