-- Makes the history partitions of today and the days ahead. $1 days. Returns how many were new.
select count(*) filter (where chronos.make_history_partition(
    (now() at time zone 'UTC')::date + day.ahead
)) as made
from generate_series(0, $1::integer) as day (ahead)
