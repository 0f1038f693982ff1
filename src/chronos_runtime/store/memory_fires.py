"""Fires as `MemoryStore` inserts them, and what they leave on their schedule."""

from collections.abc import Sequence
from datetime import datetime
from uuid import uuid4

import msgspec

from chronos_runtime.job import MAX_ATTEMPTS_DEFAULT, PRIORITY_DEFAULT
from chronos_runtime.schedule import Fire, Fired, Firing, Schedule, Status
from chronos_runtime.store import NewJob
from chronos_runtime.store.memory_row import Row


def fire_rows(row: Schedule, firing: Firing, *, lives: bool, now: datetime) -> list[Row]:
    """The jobs of a firing that overlap lets in."""
    fires = sorted(firing.fires, key=lambda fire: fire.occurrence)
    if row.overlap != "allow":
        fires = [] if lives else fires[:1]
    return [fire_row(row, fire, now) for fire in fires]


def fire_row(schedule: Schedule, fire: Fire, now: datetime) -> Row:
    """The job of one occurrence."""
    job = NewJob(
        id=fire.job_id,
        kind=schedule.kind,
        payload=fire.payload,
        topic=schedule.topic,
        priority=schedule.priority,
        max_attempts=schedule.max_attempts,
        run_at=fire.run_at,
        timeout_s=schedule.timeout_s,
        supervisor=schedule.supervisor,
    )
    row = Row.of(job, seq=0, now=now.timestamp())
    row.schedule_id, row.occurrence = schedule.id, fire.occurrence
    return row


def wake_row(schedule: Schedule, kind: str, topic: str, now: datetime) -> Row:
    """The job that tells of an absence."""
    body = {
        "schedule": schedule.name,
        "absent_since": schedule.absent_at,
        "last_success_at": schedule.last_success_at,
        "last_error": schedule.last_error,
    }
    job = NewJob(
        id=uuid4(),
        kind=kind,
        payload=msgspec.json.encode({"url": schedule.expect_url, "body": body}).decode(),
        topic=topic,
        priority=PRIORITY_DEFAULT,
        max_attempts=MAX_ATTEMPTS_DEFAULT,
    )
    return Row.of(job, seq=0, now=now.timestamp())


def fired(
    row: Schedule, firing: Firing, inserted: Sequence[Row], *, lives: bool, now: datetime
) -> tuple[Schedule, Fired]:
    """The schedule after its fires went in, as `fire_schedules.sql` leaves it."""
    occurrences = sorted(one.occurrence for one in inserted if one.occurrence is not None)
    wanted = sorted(fire.occurrence for fire in firing.fires)
    waiting = wanted[0 if lives else 1 :] if row.overlap == "queue" else []
    queued_at = waiting[0] if waiting else None
    skipped = 0
    if row.overlap != "allow":
        skipped = len(wanted) - len(occurrences) - (queued_at is not None)
    status: Status = "active"
    if firing.next_at is None and queued_at is None:
        if not row.is_alarm:
            status = "finished"
        elif not lives and not occurrences:
            status = "fired"
    moved = msgspec.structs.replace(
        row,
        next_run_at=firing.next_at,
        queued_at=queued_at,
        status=status,
        skipped=row.skipped + firing.missed + skipped,
        updated_at=now,
    )
    if occurrences:
        newest = max(inserted, key=lambda one: one.occurrence or now)
        moved = msgspec.structs.replace(
            moved, last_occurrence=occurrences[-1], last_fire_at=now, last_job_id=newest.id
        )
    return moved, Fired(occurrences, skipped)
