-- One page of schedules, or of alarms, by name.
--   $1 whether alarms · $2 statuses (null: all) · $3 only after this name and $4 id · $5 page size
-- Locks nothing. Index: schedules_name; what the filter leaves out is walked over.
select schedule.*
from chronos.schedules as schedule
where schedule.is_alarm = $1
  and coalesce(schedule.status = any ($2::text[]), true)
  and (schedule.name, schedule.id) > ($3::text, $4::uuid)
order by schedule.name, schedule.id
limit (select $5::bigint)
