-- The gates that have been touched. Locks nothing.
select topic.name, topic.paused, topic.updated_at
from chronos.topics as topic
order by topic.name
