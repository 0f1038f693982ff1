-- Leaves, or refreshes, this worker's wish to be notified. $1 worker · $2 topics
insert into chronos.idle_marks as mark (topic, worker)
select wanted.topic, $1 from unnest($2::text[]) as wanted (topic)
on conflict (topic, worker) do update set marked_at = now()
