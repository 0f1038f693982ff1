"""One job as `MemoryStore` keeps it, live or ended, with the rules of the table it stands for."""

import math
from datetime import UTC, date, datetime
from typing import Any, Literal
from uuid import UUID

import msgspec

from chronos_runtime.errors import StoreError
from chronos_runtime.job import PRIORITIES, TOPIC_ALL, FinalState, Job, Return, State
from chronos_runtime.lineage import Line
from chronos_runtime.store import JobRecord, NewJob

ERRORS_MAX = 10
_ATTEMPTS_MAX = 1_000_000
_NAME_MAX_BYTES = 200
_KEY_MAX_BYTES = 1_000
_SUPERVISOR_MAX_BYTES = 180
_RUN_AT_MIN = datetime(2000, 1, 1, tzinfo=UTC).timestamp()
_NO_OCCURRENCE = datetime.min.replace(tzinfo=UTC)
_RUN_AT_MAX = datetime(9999, 1, 1, tzinfo=UTC).timestamp()


class Row(msgspec.Struct, kw_only=True, eq=False):
    """A row of `chronos.jobs`, and of `chronos.job_history` once it has ended.

    Instants are unix seconds by the store's clock. `payload` and `result` are JSON texts.
    """

    id: UUID
    seq: int
    topic: str
    kind: str
    priority: int
    max_attempts: int
    timeout_s: float | None
    unique_key: str | None
    payload: str
    run_at: float
    enqueued_at: float
    state: State = "ready"
    attempt: int = 0
    lease_token: UUID | None = None
    lease_until: float | None = None
    cancel_requested: bool = False
    errors: list[dict[str, object]] = []
    result: str | None = None
    finished_at: float | None = None
    run_s: float | None = None
    schedule_id: UUID | None = None
    occurrence: datetime | None = None
    supervisor: str | None = None
    retry_of: UUID | None = None
    lineage_id: UUID | None = None
    lineage_no: int | None = None
    day: date | None = None
    """The history partition it stands in; None: the default one."""

    @classmethod
    def of(cls, job: NewJob, *, seq: int, now: float) -> "Row":
        """A new job, ready or scheduled. Raises StoreError where the table would refuse it."""
        run_at = now + (job.delay_s or 0.0) if job.run_at is None else job.run_at.timestamp()
        row = cls(
            id=job.id,
            seq=seq,
            topic=job.topic,
            kind=job.kind,
            priority=job.priority,
            max_attempts=job.max_attempts,
            timeout_s=job.timeout_s,
            unique_key=job.unique_key,
            payload=job.payload,
            run_at=run_at,
            enqueued_at=now,
            state="scheduled" if run_at > now else "ready",
            supervisor=job.supervisor,
        )
        read_json(job.payload)
        row.check()
        return row

    def check(self) -> None:
        """Raise StoreError where a constraint of the table would refuse the row."""
        key, timeout_s = self.unique_key, self.timeout_s
        rules = {
            "jobs_priority_in_range": 0 <= self.priority < PRIORITIES,
            "jobs_attempt_in_range": 1 <= self.max_attempts <= _ATTEMPTS_MAX,
            "jobs_timeout_is_positive": timeout_s is None or 0 < timeout_s < math.inf,
            "jobs_run_at_is_finite": is_storable(self.run_at),
            "jobs_names_fit": _fits(self.topic, _NAME_MAX_BYTES)
            and self.topic != TOPIC_ALL
            and _fits(self.kind, _NAME_MAX_BYTES)
            and (key is None or _fits(key, _KEY_MAX_BYTES)),
            "jobs_supervisor_fits": len((self.supervisor or "").encode()) <= _SUPERVISOR_MAX_BYTES,
            "jobs_lineage_is_whole": self.retry_of is None or self.supervisor is not None,
        }
        for rule, holds in rules.items():
            if not holds:
                raise StoreError(f'job {self.id} violates check constraint "{rule}"')

    @property
    def claim_order(self) -> tuple[int, int]:
        """The order of claims within a topic."""
        return (self.priority, self.seq)

    @property
    def due_order(self) -> tuple[float, int]:
        """The order in which scheduled jobs become ready."""
        return (self.run_at, self.seq)

    def lease(self, token: UUID, until: float) -> None:
        """From ready to running."""
        assert self.state == "ready"
        self.state, self.lease_token, self.lease_until = "running", token, until
        self.attempt += 1

    def requeue(self, now: float, *, delay_s: float | None, gives_back: bool) -> None:
        """From running to scheduled, or to ready where there is nothing to wait for."""
        assert self.state == "running"
        self.state = "ready" if delay_s is None or delay_s <= 0 else "scheduled"
        self.run_at = self.run_at if delay_s is None else now + delay_s
        self.lease_token = self.lease_until = None
        self.attempt -= gives_back

    def end(self, state: FinalState, now: float) -> None:
        """From a live state to a final one. The lease token stays, to tell whose write it was."""
        self.state, self.finished_at = state, now
        self.lease_until, self.cancel_requested = None, False

    def expire(self, now: float) -> Literal["ready", "dead", "failed", "cancelled"]:
        """Note that the lease was lost; the state the job must go to."""
        error = {
            "type": "LeaseExpired",
            "message": "worker lease expired",
            "attempt": self.attempt,
            "worker": str(self.lease_token)[:18],
        }
        self.push_error(msgspec.json.encode(error).decode(), now)
        if self.cancel_requested:
            return "cancelled"
        if self.attempt < self.max_attempts:
            return "ready"
        return "dead" if self.supervisor is None else "failed"

    def revive(self, *, seq: int, now: float) -> "Row":
        """A dead job as it comes back to life: the attempt counts on, more are allowed."""
        assert self.state == "dead"
        row = Row(
            id=self.id,
            seq=seq,
            topic=self.topic,
            kind=self.kind,
            priority=self.priority,
            max_attempts=max(self.max_attempts, self.attempt + 1),
            timeout_s=self.timeout_s,
            unique_key=self.unique_key,
            payload=self.payload,
            run_at=now,
            enqueued_at=self.enqueued_at,
            attempt=self.attempt,
            errors=self.errors,
            schedule_id=self.schedule_id,
            occurrence=self.occurrence,
            supervisor=self.supervisor,
            retry_of=self.retry_of,
            lineage_id=self.lineage_id,
            lineage_no=self.lineage_no,
        )
        row.check()
        return row

    def push_error(self, error: str | None, now: float) -> None:
        """Append to the bounded error history, stamped by the store's clock."""
        if error is not None:
            stamped = read_json(error) | {"at": _instant(now).isoformat()}
            self.errors = [*self.errors, stamped][-ERRORS_MAX:]

    def claimed(self, now: float, claimed_at: float) -> Job:
        """The job as a claim returns it."""
        assert self.lease_token is not None
        return Job(
            id=self.id,
            seq=self.seq,
            topic=self.topic,
            kind=self.kind,
            priority=self.priority,
            attempt=self.attempt,
            max_attempts=self.max_attempts,
            timeout_s=self.timeout_s,
            payload=self.payload,
            wait_s=now - self.run_at,
            schedule_id=self.schedule_id,
            occurrence=self.occurrence,
            line=self._line(),
            lease_token=self.lease_token,
            claimed_at=claimed_at,
        )

    def _line(self) -> str | None:
        if self.supervisor is None:
            return None
        line = Line(self.supervisor, self.retry_of, self.lineage_id, self.lineage_no)
        return msgspec.json.format(msgspec.json.encode(line).decode(), indent=0)

    def record(self) -> JobRecord:
        """The job as people read it."""
        return JobRecord(
            id=self.id,
            state=self.state,
            topic=self.topic,
            kind=self.kind,
            priority=self.priority,
            attempt=self.attempt,
            max_attempts=self.max_attempts,
            timeout_s=self.timeout_s,
            unique_key=self.unique_key,
            payload=read_json(self.payload),
            result=None if self.result is None else read_json(self.result),
            errors=[dict(error) for error in self.errors],
            run_at=_instant(self.run_at),
            enqueued_at=_instant(self.enqueued_at),
            lease_token=self.lease_token,
            lease_until=None if self.lease_until is None else _instant(self.lease_until),
            cancel_requested=self.cancel_requested,
            finished_at=None if self.finished_at is None else _instant(self.finished_at),
            run_s=self.run_s,
            schedule_id=self.schedule_id,
            occurrence=self.occurrence,
            supervisor=self.supervisor,
            retry_of=self.retry_of,
            lineage_id=self.lineage_id,
            lineage_no=self.lineage_no,
        )


def by_occurrence(job: Row | Job) -> datetime:
    """The order in which ended fires are told to their schedule, those of one statement."""
    return job.occurrence or _NO_OCCURRENCE


def read_json(text: str) -> Any:
    """The value of a JSON text. Raises StoreError where a jsonb column would refuse it."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise StoreError(f"invalid input syntax for type json: {error}") from error


def check_json(*texts: str | None) -> None:
    """Raise StoreError where one of these is neither None nor JSON."""
    for text in texts:
        if text is not None:
            read_json(text)


def check_return(one: Return, now: float) -> None:
    """Raise StoreError where what is given back cannot be stored."""
    check_json(one.error)
    if one.delay_s is not None and not is_storable(now + one.delay_s):
        raise StoreError(f"job {one.job.id}: a delay of {one.delay_s} s is out of range")


def is_storable(run_at: float) -> bool:
    """Whether the table takes this instant; false for NaN and the infinities, too."""
    return _RUN_AT_MIN <= run_at <= _RUN_AT_MAX


def _fits(text: str, max_bytes: int) -> bool:
    return 1 <= len(text.encode()) <= max_bytes


def _instant(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
