"""A job as it is inserted, and as it stands in the database."""

from datetime import datetime
from uuid import UUID

import msgspec

from chronos_runtime.job import State


class NewJob(msgspec.Struct, frozen=True, gc=False):
    """A job to insert; checked by the client, checked again by the table.

    Made by `Client.job`, which fills in what is left out:

    >>> from chronos_runtime import Client, MemoryStore
    >>> Client(MemoryStore()).job("greet", {"name": "Ada"}).payload
    '{"name":"Ada"}'
    """

    id: UUID
    kind: str
    payload: str
    topic: str
    priority: int
    max_attempts: int
    run_at: datetime | None = None
    delay_s: float | None = None
    timeout_s: float | None = None
    unique_key: str | None = None
    supervisor: str | None = None

    @property
    def is_plain(self) -> bool:
        """Ready at once and bound by no key: such jobs can be bulk-copied."""
        return self.run_at is None and not self.delay_s and self.unique_key is None


class JobRecord(msgspec.Struct, frozen=True):
    """A job as it stands in the database, live or ended. `payload`, `result` are JSON values.

    >>> import anyio
    >>> from chronos_runtime import Client, MemoryStore
    >>> async def greet() -> JobRecord:
    ...     client = Client(MemoryStore())
    ...     enqueued = await client.enqueue("greet", {"name": "Ada"})
    ...     return await client.get(enqueued.id)
    >>> record = anyio.run(greet)
    >>> (record.state, record.payload, record.attempt)
    ('ready', {'name': 'Ada'}, 0)
    """

    id: UUID
    state: State
    topic: str
    kind: str
    priority: int
    attempt: int
    max_attempts: int
    timeout_s: float | None
    unique_key: str | None
    payload: object
    result: object
    errors: list[dict[str, object]]
    run_at: datetime
    enqueued_at: datetime
    lease_token: UUID | None
    lease_until: datetime | None
    cancel_requested: bool
    finished_at: datetime | None
    run_s: float | None
    schedule_id: UUID | None = None
    occurrence: datetime | None = None
    supervisor: str | None = None
    """Who decides after a failed attempt: None, the queue; '', nobody."""
    retry_of: UUID | None = None
    """The attempt before this one, and the first one of the line; None for the first."""
    lineage_id: UUID | None = None
    lineage_no: int | None = None
