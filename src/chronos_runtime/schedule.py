"""A schedule: when to fire, what to enqueue, and where it stands.

A schedule is a row that people and code edit; a *fire* is the ordinary job of one *occurrence*,
one due instant of its timetable. An *alarm* is a schedule whose fire wakes a URL.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

import msgspec

from chronos_runtime.job import MAX_ATTEMPTS_DEFAULT, PRIORITY_DEFAULT, TOPIC_DEFAULT, State

Overlap = Literal["allow", "skip", "queue"]
CatchUp = Literal["one", "all", "none"]
Gap = Literal["shift", "skip"]
Fold = Literal["first", "both"]
Status = Literal["active", "finished", "broken", "fired", "failed", "cancelled"]

ALARM_ENDS: frozenset[Status] = frozenset({"fired", "failed", "cancelled"})
"""How an alarm ends. It is kept for audit then, and its name is free again."""


class Definition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What somebody decided about a schedule. Exactly one of `cron`, `interval_s`, `once_at`."""

    kind: str
    payload: str = "null"
    """JSON text; each fire gets it, with its placeholders filled in (see `fires.render`)."""
    topic: str = TOPIC_DEFAULT
    priority: int = PRIORITY_DEFAULT
    max_attempts: int = MAX_ATTEMPTS_DEFAULT
    timeout_s: float | None = None
    supervisor: str | None = None
    """Who decides after a failed attempt of a fire; None: the queue."""
    cron: str | None = None
    interval_s: float | None = None
    once_at: datetime | None = None
    anchor_at: datetime | None = None
    """From where intervals are counted."""
    tz: str = "UTC"
    gap: Gap = "shift"
    fold: Fold = "first"
    starts_at: datetime | None = None
    ends_at: datetime | None = None
    jitter_s: float = 0.0
    catch_up: CatchUp = "one"
    catch_up_max: int = 100
    late_s: float = 60.0
    overlap: Overlap = "allow"
    expect_success_within_s: float | None = None
    expect_url: str | None = None


class Schedule(Definition, frozen=True, kw_only=True):
    """A schedule or an alarm, as it stands in the database.

    >>> from uuid import uuid4
    >>> schedule = Schedule(id=uuid4(), name="nightly", kind="report", cron="0 3 * * *")
    >>> (schedule.status, schedule.overlap, schedule.version)
    ('active', 'allow', 1)
    """

    id: UUID
    name: str
    is_alarm: bool = False
    origin: str | None = None
    """The app whose code made it; None: made by hand."""
    digest: str | None = None
    """Of what the code said when it was last taken over."""
    paused: bool = False
    status: Status = "active"
    version: int = 1
    next_run_at: datetime | None = None
    """The cursor: the occurrence that fires next."""
    queued_at: datetime | None = None
    """With overlap `queue`: the occurrence that waits for the living fire to end."""
    broken_error: str | None = None
    skipped: int = 0
    """Occurrences that never fired, by overlap or because they were missed."""
    last_occurrence: datetime | None = None
    last_fire_at: datetime | None = None
    last_job_id: UUID | None = None
    last_outcome: str | None = None
    last_error: str | None = None
    last_ended_at: datetime | None = None
    last_success_at: datetime | None = None
    consecutive_failures: int = 0
    absent_at: datetime | None = None
    """By when a success is expected."""
    is_absent: bool = False
    created_at: datetime | None = None
    updated_at: datetime | None = None


class Due(msgspec.Struct, frozen=True):
    """What is to be fired, by the store's clock, and when the next one is due."""

    read_at: datetime
    next_due_s: float | None
    has_queued: bool
    """Whether an occurrence waits for a living fire to end."""
    has_overdue: bool
    """Whether a success is overdue that was not marked yet."""
    absent: int
    """How many schedules are marked as absent."""
    schedules: list[Schedule]


class Fire(msgspec.Struct, frozen=True):
    """One occurrence as the job it becomes."""

    job_id: UUID
    occurrence: datetime
    run_at: datetime
    payload: str


class Firing(msgspec.Struct, frozen=True):
    """One schedule on its way to being fired: as it was read, and where it goes."""

    schedule: Schedule
    fires: Sequence[Fire]
    next_at: datetime | None
    missed: int = 0


class Fired(msgspec.Struct, frozen=True):
    """What became of a firing that won: the occurrences fired, and how many overlap skipped."""

    occurrences: list[datetime]
    skipped: int


class FireRecord(msgspec.Struct, frozen=True):
    """A fire as people read it: the job of one occurrence.

    >>> from datetime import UTC
    >>> at = datetime(2027, 1, 15, 3, tzinfo=UTC)
    >>> FireRecord(UUID(int=1), "succeeded", at, at, 1, None, at).late_s
    0.0
    """

    id: UUID
    state: State
    occurrence: datetime
    enqueued_at: datetime
    attempt: int
    error: dict[str, Any] | None
    finished_at: datetime | None

    @property
    def late_s(self) -> float:
        """How long after its occurrence it fired."""
        return (self.enqueued_at - self.occurrence).total_seconds()


class Absence(msgspec.Struct, frozen=True):
    """A schedule whose success is overdue."""

    name: str
    last_success_at: datetime | None
    last_error: str | None


def define(schedule: Schedule, definition: Definition) -> Schedule:
    """The schedule with another definition.

    >>> old = Schedule(id=UUID(int=1), name="nightly", kind="report", cron="0 3 * * *")
    >>> define(old, Definition(kind="report", cron="0 4 * * *")).cron
    '0 4 * * *'
    """
    changes = {name: getattr(definition, name) for name in Definition.__struct_fields__}
    return msgspec.structs.replace(schedule, **changes)
