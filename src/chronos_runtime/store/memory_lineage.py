"""Supervised tasks as `MemoryStore` keeps them: failure facts, and the attempts that follow."""

from collections.abc import Iterable
from uuid import UUID

from chronos_runtime.job import PRIORITY_DEFAULT
from chronos_runtime.lineage import SUPERVISE_TOPIC, fact_id, supervise_kind
from chronos_runtime.store import NewJob
from chronos_runtime.store.memory_row import Row

_FACT_ATTEMPTS = 20


def fact_row(task: Row, *, seq: int, now: float) -> Row:
    """The job that tells a supervisor of a failure, as `chronos.tell_supervisors` makes it."""
    assert task.supervisor
    fact = NewJob(
        id=fact_id(task.id, task.attempt),
        kind=supervise_kind(task.supervisor),
        payload=f'{{"task": "{task.id}"}}',
        topic=SUPERVISE_TOPIC,
        priority=PRIORITY_DEFAULT,
        max_attempts=_FACT_ATTEMPTS,
    )
    return Row.of(fact, seq=seq, now=now)


def attempt_row(
    failed: Row,
    id: UUID,
    *,
    payload: str | None,
    delay_s: float,
    unique_key: str | None,
    seq: int,
    now: float,
) -> Row:
    """The next attempt of a failed task, as `start_attempt.sql` inserts it."""
    attempt = NewJob(
        id=id,
        kind=failed.kind,
        payload=failed.payload if payload is None else payload,
        topic=failed.topic,
        priority=failed.priority,
        max_attempts=failed.max_attempts,
        delay_s=delay_s,
        timeout_s=failed.timeout_s,
        unique_key=unique_key,
        supervisor=failed.supervisor,
    )
    row = Row.of(attempt, seq=seq, now=now)
    row.schedule_id, row.occurrence = failed.schedule_id, failed.occurrence
    row.retry_of, row.lineage_id = failed.id, failed.lineage_id or failed.id
    row.lineage_no = (failed.lineage_no or 1) + 1
    row.check()
    return row


def line_of(rows: Iterable[Row], one: Row) -> list[Row]:
    """The attempts of the line that a task belongs to, the first one first."""
    first = one.lineage_id or one.id
    found = [row for row in rows if first in (row.id, row.lineage_id)]
    return sorted(
        found, key=lambda row: (row.lineage_no or 1, row.finished_at or float("inf"), row.id)
    )
