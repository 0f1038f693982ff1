-- Presence, for people. $1 worker · $2 host · $3 pid · $4 version · $5 topics · $6 kinds
insert into chronos.workers as worker (id, host, pid, version, topics, kinds)
values ($1, $2, $3, $4, $5, $6)
on conflict (id) do update set seen_at = now()
