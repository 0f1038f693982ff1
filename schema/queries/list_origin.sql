-- The schedules that an app's code made. $1 the app's name. Locks nothing. Index: schedules_origin.
select schedule.* from chronos.schedules as schedule where schedule.origin = $1 order by schedule.name
