-- Closes or opens the gate of a topic, or of all topics by the name '*'. $1 topic · $2 paused
-- Everybody's next claim sees it; opening also wakes the idle.
with gate as (
    insert into chronos.topics as topic (name, paused)
    values ($1, $2)
    on conflict (name) do update
    set paused = excluded.paused, updated_at = now()
    returning topic.name
)
select pg_notify('chronos_returned', gate.name) from gate where not $2
