-- Reads schedules by name, ended alarms of that name too, oldest first. $1 names
-- Returns at least one row: the database's clock, and one schedule a row (null: none has the name).
-- Locks nothing. Index: schedules_name.
select clock.read_at, found.*
from (select now() as read_at) as clock
left join lateral (
    select schedule.* from chronos.schedules as schedule where schedule.name = any ($1::text[])
) as found on true
order by found.created_at, found.id
