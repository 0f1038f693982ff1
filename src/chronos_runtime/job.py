"""A job, the states it passes through, and what a handler may end with.

    scheduled ──promote──► ready ──claim──► running ──► succeeded | dead | failed | cancelled
        ▲                    ▲                 │
        └── retry, snooze ───┴──── release ────┘

A handler's decision is a value: whatever it returns is the job's result, unless it returns one
of `Snooze`, `Retry`, `Cancel` or `Discard`. An exception is a failed attempt. `failed` is how a
supervised task ends whose attempt failed: the queue never tries it again.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Literal, final
from uuid import UUID

import msgspec

from chronos_runtime.lineage import read_line
from chronos_runtime.transaction import Transaction, open_transaction

LiveState = Literal["scheduled", "ready", "running"]
FinalState = Literal["succeeded", "dead", "failed", "cancelled"]
State = Literal["scheduled", "ready", "running", "succeeded", "dead", "failed", "cancelled"]

PRIORITIES = 10  # 0 is claimed first, 9 last.
PRIORITY_DEFAULT = 5  # In the middle, so that both more and less urgent work has room.
TOPIC_DEFAULT = "default"
TOPIC_ALL = "*"  # The name of the gate that closes every topic; no topic may bear it.
MAX_ATTEMPTS_DEFAULT = 5


class Snooze(msgspec.Struct, frozen=True):
    """Run this job again later; the attempt is given back and nothing counts as failed.

    >>> Snooze(for_s=60.0)
    Snooze(for_s=60.0)
    """

    for_s: float


class Retry(msgspec.Struct, frozen=True):
    """Fail this attempt and try again after `after_s`, whatever the backoff says.

    >>> Retry(after_s=5.0, reason="rate limited")
    Retry(after_s=5.0, reason='rate limited')
    """

    after_s: float
    reason: str = "the handler asked for a retry"


class Cancel(msgspec.Struct, frozen=True):
    """End this job as `cancelled`: the work is not wanted any more.

    >>> Cancel("order withdrawn")
    Cancel(reason='order withdrawn')
    """

    reason: str = "the handler cancelled the job"


class Discard(msgspec.Struct, frozen=True):
    """End this job as `dead` at once: trying again would not help.

    >>> Discard("no such customer")
    Discard(reason='no such customer')
    """

    reason: str = "the handler gave the job up"


class Job(msgspec.Struct, frozen=True, gc=False):
    """A claimed job, as its handler sees it. `id` and `attempt` make a key for idempotency.

    >>> from chronos_runtime.ids import new_job_id
    >>> job = Job(
    ...     new_job_id(), 7, "default", "greet", 5, 1, 5, None, b"{}", 0.0, None, None, None,
    ...     UUID(int=1),
    ... )
    >>> (job.kind, job.attempt, job.is_last_attempt)
    ('greet', 1, False)
    """

    id: UUID
    seq: int
    topic: str
    kind: str
    priority: int
    attempt: int
    max_attempts: int
    timeout_s: float | None
    payload: str | bytes
    wait_s: float
    """How long the job had been due when it was claimed, by the database's clock."""
    schedule_id: UUID | None
    """The schedule this job is a fire of, if it is one."""
    occurrence: datetime | None
    """The instant of that schedule's timetable it stands for: process what was due then."""
    line: str | None
    """Where a supervised task stands among its attempts, as JSON; None: not supervised."""
    lease_token: UUID
    claimed_at: float = 0.0
    """By this process's monotonic clock, just before the claim was sent; for local waits only."""

    @property
    def is_last_attempt(self) -> bool:
        """Whether a failure now ends the job, as `failed_state`."""
        return self.line is not None or self.attempt >= self.max_attempts

    @property
    def failed_state(self) -> Literal["dead", "failed"]:
        """How a failure that is not tried again ends the job."""
        return "dead" if self.line is None else "failed"

    @property
    def supervisor(self) -> str | None:
        """Who decides after a failed attempt; None: the queue, by the backoff."""
        return None if self.line is None else read_line(self.line).supervisor

    @property
    def retry_of(self) -> UUID | None:
        """The task whose failure led to this one."""
        return None if self.line is None else read_line(self.line).retry_of

    @property
    def lineage_id(self) -> UUID:
        """The first task of the line; its own id unless this is a later attempt."""
        return self.id if self.line is None else read_line(self.line).id or self.id

    @property
    def lineage_no(self) -> int:
        """Which attempt of its line this task is; a task that runs again after a crash keeps it."""
        return 1 if self.line is None else read_line(self.line).number or 1

    def transaction(self) -> Transaction:
        """The handler's own writes and the end of this job in one: `async with … as connection`."""
        return open_transaction(self)


@final
class Finish(msgspec.Struct, frozen=True, gc=False):
    """An ended job on its way to the history."""

    job: Job
    state: FinalState
    run_s: float
    result: str | None = None
    error: str | None = None
    is_written: bool = False
    """The handler's own transaction has written it."""

    @property
    def is_plain(self) -> bool:
        """Whether it says no more than that, and how long, an ordinary job ran."""
        is_success = self.state == "succeeded" and self.result is None and self.error is None
        return is_success and not self.is_written and self.job.schedule_id is None


@final
class Successes(msgspec.Struct, frozen=True):
    """Plain finishes, in columns: an object for each, and each look at it, cost 0.2 µs in all."""

    jobs: Sequence[Job]
    run_s: Sequence[float]

    def __len__(self) -> int:
        return len(self.jobs)

    def __iter__(self) -> Iterator[Finish]:
        for job, run_s in zip(self.jobs, self.run_s, strict=True):
            yield Finish(job, "succeeded", run_s)


Finishes = Sequence[Finish] | Successes


@final
class Return(msgspec.Struct, frozen=True, gc=False):
    """A claimed job on its way back to the queue."""

    job: Job
    why: Literal["retry", "snooze", "release", "interrupt"]
    run_s: float = 0.0
    delay_s: float | None = None
    """Seconds from now; None leaves it as due as it was."""
    error: str | None = None
    is_written: bool = False

    @property
    def gives_back(self) -> bool:
        """Whether the attempt is given back: it never started, or the handler snoozed."""
        return self.why in ("snooze", "release")


Outcome = Finish | Return
