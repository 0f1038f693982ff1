"""The rules of `chronos.schedules`, as its constraints and `chronos.note_fires` carry them."""

import math
from datetime import UTC, datetime, timedelta
from typing import get_args

import msgspec

from chronos_runtime.checks import NAME_MAX_BYTES
from chronos_runtime.errors import StoreError
from chronos_runtime.job import PRIORITIES, TOPIC_ALL
from chronos_runtime.schedule import (
    ALARM_ENDS,
    CatchUp,
    Definition,
    Fold,
    Gap,
    Overlap,
    Schedule,
)
from chronos_runtime.store.memory_row import Row, is_storable, read_json

EDITED = (
    *Definition.__struct_fields__,
    *("origin", "digest", "paused", "status", "next_run_at", "broken_error", "last_error"),
)
"""What an edit writes; the rest is the fires' to write."""

_CATCH_UP_MAX = 1_000
_ERROR_MAX = 500
_SUPERVISOR_MAX = 180


def check(row: Schedule) -> None:
    """Raise StoreError where a constraint of the table would refuse the row."""
    timings = (row.cron, row.interval_s, row.once_at)
    ends = row.starts_at and row.ends_at
    rules = {
        "schedules_has_one_timing": sum(one is not None for one in timings) == 1,
        "schedules_interval_is_positive": _is_span(row.interval_s),
        "schedules_anchor_has_interval": row.anchor_at is None or row.interval_s is not None,
        "schedules_rules_are_known": row.gap in get_args(Gap)
        and row.fold in get_args(Fold)
        and row.catch_up in get_args(CatchUp)
        and row.overlap in get_args(Overlap),
        "schedules_bounds_hold": 0 <= row.jitter_s < math.inf
        and 0 <= row.late_s < math.inf
        and 1 <= row.catch_up_max <= _CATCH_UP_MAX
        and (not ends or row.starts_at <= row.ends_at)  # type: ignore[operator]
        and _is_span(row.expect_success_within_s),
        "schedules_priority_in_range": 0 <= row.priority < PRIORITIES,
        "schedules_attempts_in_range": 1 <= row.max_attempts <= 1_000_000,
        "schedules_timeout_is_positive": _is_span(row.timeout_s),
        "schedules_names_fit": all(
            name is None or 1 <= len(name.encode()) <= NAME_MAX_BYTES
            for name in (row.name, row.origin, row.topic, row.kind)
        )
        and row.topic != TOPIC_ALL,
        "schedules_supervisor_fits": len((row.supervisor or "").encode()) <= _SUPERVISOR_MAX,
        "schedules_cursor_is_finite": row.next_run_at is None
        or is_storable(row.next_run_at.timestamp()),
        "schedules_status_is_known": row.status in ("active", "broken")
        or (row.status in ALARM_ENDS if row.is_alarm else row.status == "finished"),
        "schedules_broken_says_why": (row.status == "broken") == (row.broken_error is not None),
        "schedules_ended_is_at_rest": row.status == "active"
        or (row.next_run_at is None and row.queued_at is None),
    }
    read_json(row.payload)
    for rule, holds in rules.items():
        if not holds:
            raise StoreError(f'schedule {row.name!r} violates check constraint "{rule}"')


def ended(schedule: Schedule, job: Row) -> Schedule:
    """The schedule after one of its fires ended, as `chronos.note_fires` leaves it."""
    assert job.finished_at is not None
    now = datetime.fromtimestamp(job.finished_at, UTC)
    status, failures = schedule.status, schedule.consecutive_failures
    last_error = schedule.last_error
    if job.state == "succeeded":
        failures = 0
        schedule = msgspec.structs.replace(
            schedule,
            last_success_at=now,
            is_absent=False,
            absent_at=later(now, schedule.expect_success_within_s),
        )
    else:
        failures += job.state in ("dead", "failed")
        last_error = _text(job) or last_error
    is_over = schedule.next_run_at is None and schedule.queued_at is None
    if schedule.is_alarm and status == "active" and is_over:
        if schedule.once_at is None or job.state == "succeeded":
            status = "fired"
        else:
            status = "failed" if job.state in ("dead", "failed") else "cancelled"
    return msgspec.structs.replace(
        schedule,
        last_outcome=job.state,
        last_ended_at=now,
        last_error=last_error,
        consecutive_failures=failures,
        status=status,
        updated_at=now,
    )


def _text(job: Row) -> str:
    last = job.errors[-1] if job.errors else {}
    parts = [str(last[name]) for name in ("type", "message") if last.get(name) is not None]
    return ": ".join(parts)[:_ERROR_MAX]


def later(now: datetime, span_s: float | None) -> datetime | None:
    """The instant so much later; None for no span."""
    return None if span_s is None else now + timedelta(seconds=span_s)


def seconds(now: datetime, at: datetime | None) -> float:
    """How far an instant lies ahead."""
    assert at is not None
    return (at - now).total_seconds()


def _is_span(span_s: float | None) -> bool:
    return span_s is None or 0 < span_s < math.inf
