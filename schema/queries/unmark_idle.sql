-- Takes this worker's wish to be notified back. $1 worker
delete from chronos.idle_marks as mark where mark.worker = $1
