-- Forgets schedules; what they fired stays. $1 ids. Returns the ids removed.
-- Locks: the schedules, in id order. Index: primary key.
delete from chronos.schedules as schedule
where schedule.id = any (array(
    select owned.id from chronos.schedules as owned
    where owned.id = any ($1::uuid[])
    order by owned.id
    for update
))
returning schedule.id
