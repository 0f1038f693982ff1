"""The client: enqueue, look, cancel, retry; in the caller's transaction where that is wanted."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import lru_cache
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypedDict, Unpack, get_args
from uuid import UUID

from chronos_runtime.alarms import Alarms
from chronos_runtime.answers import Counts, Enqueued, Page
from chronos_runtime.app import Chronos
from chronos_runtime.attempts import Attempts, supervisor_of
from chronos_runtime.checks import (
    checked_delay,
    checked_gate,
    checked_key,
    checked_max_attempts,
    checked_name,
    checked_priority,
    checked_run_at,
    checked_timeout,
)
from chronos_runtime.config import DatabaseConfig
from chronos_runtime.errors import (
    InputError,
    JobNotFound,
    JobStateError,
    StoreUnavailable,
    UnknownKind,
)
from chronos_runtime.handlers import NO_HANDLER, Handler, HandlerFunction, NoHandler
from chronos_runtime.ids import new_job_id
from chronos_runtime.job import TOPIC_ALL, State
from chronos_runtime.payload import encode_payload
from chronos_runtime.processor import Processor
from chronos_runtime.processors.builtin_rules import builtin_rules
from chronos_runtime.schedules import Schedules
from chronos_runtime.store import CancelResult, Gate, JobRecord, NewJob, Store
from chronos_runtime.store.insert import BorrowedConnection
from chronos_runtime.store.postgres import PostgresStore

if TYPE_CHECKING:
    import asyncpg

PAGE_MAX = 1_000
COUNT_BOUND = 10_000  # Counts are exact up to here and say "at least" beyond.
_KEY_TRIES = 5  # A key's holder may end between the clash and the look; then the key is free.


class JobOptions(TypedDict, total=False):
    """What `enqueue` passes on to `job`."""

    topic: str | None
    priority: int | None
    max_attempts: int | None
    timeout_s: float | None
    run_at: datetime | None
    delay_s: float | None
    key: str | None
    attempts: Attempts | None
    supervisor: str | None


class Client:
    """Talks to the queue from any asyncio program.

    With an app, kinds and payloads are checked against its handlers before anything is written;
    without one, any kind goes, for producers that do not hold the handlers.

    >>> client = Client.connect("postgresql://localhost/app")
    >>> client.job("greet", {"name": "Ada"}, priority=0).kind
    'greet'
    """

    def __init__(self, store: Store, app: Chronos | None = None) -> None:
        self._store = store
        self._app = app
        self.schedules = Schedules(store, self._rules)
        self.alarms = Alarms(store)

    @classmethod
    def connect(cls, dsn: str, app: Chronos | None = None) -> "Client":
        """A client of the database at `dsn`; connections open when they are needed."""
        return cls(PostgresStore(DatabaseConfig(dsn=dsn)), app)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the client's connections."""
        await self._store.close()

    def job(
        self,
        kind: str | HandlerFunction | Processor,
        payload: object = None,
        *,
        topic: str | None = None,
        priority: int | None = None,
        max_attempts: int | None = None,
        timeout_s: float | None = None,
        run_at: datetime | None = None,
        delay_s: float | None = None,
        key: str | None = None,
        attempts: Attempts | None = None,
        supervisor: str | None = None,
    ) -> NewJob:
        """A job, checked but not yet enqueued. What is left out comes from its handler.

        `run_at` and `delay_s` postpone it; `key` lets only one live job bear that key; with
        `attempts="supervised"`, `supervisor` decides what comes of a failed attempt.
        Enqueuing the same object again is safe while the job lives: the id is made here.
        """
        name, rules = self._rules(kind)
        if run_at is not None and delay_s is not None:
            raise InputError("run_at, delay_s: give one of them, not both")
        # Most jobs leave everything out, and a bulk makes tens of thousands of them: nothing is
        # called for what is None. Measured: 2.2 µs a job, and 2.5 with a call for each option.
        return NewJob(
            id=new_job_id(),
            kind=name,
            payload=encode_payload(name, payload, rules.decode),
            topic=rules.topic if topic is None else checked_name(topic, "topic"),
            priority=rules.priority if priority is None else checked_priority(priority),
            max_attempts=(
                rules.max_attempts if max_attempts is None else checked_max_attempts(max_attempts)
            ),
            run_at=None if run_at is None else checked_run_at(run_at),
            delay_s=None if delay_s is None else _checked_wait(delay_s),
            timeout_s=None if timeout_s is None else checked_timeout(timeout_s),
            unique_key=None if key is None else checked_key(key),
            supervisor=(
                rules.supervisor
                if attempts is None and supervisor is None
                else supervisor_of(name, attempts, supervisor, rules.supervisor)
            ),
        )

    def _rules(self, kind: str | HandlerFunction | Processor) -> tuple[str, Handler | NoHandler]:
        """The kind's name and what goes for its jobs, checked when it was registered."""
        if self._app is not None:
            handler = self._app.find(kind)
            return handler.kind, handler
        if not isinstance(kind, str):
            raise UnknownKind("kind: a client without an app takes the kind's name, no function")
        return kind, _rules_without_app(kind)

    async def enqueue(
        self,
        kind: str | HandlerFunction | Processor,
        payload: object = None,
        *,
        connection: "asyncpg.Connection | None" = None,
        **options: Unpack[JobOptions],
    ) -> Enqueued:
        """Enqueue one job; see `job` for the options.

        On the caller's own `connection` it takes part in that connection's transaction: the job
        exists when, and only when, the transaction commits.
        """
        job = self.job(kind, payload, **options)
        if job.unique_key is None:
            store = self._store if connection is None else BorrowedConnection(connection)
            return Enqueued(job.id, is_new=bool(await store.enqueue_jobs([job])))
        (enqueued,) = await self.enqueue_many([job], connection=connection)
        return enqueued

    async def enqueue_many(
        self, jobs: Iterable[NewJob], *, connection: "asyncpg.Connection | None" = None
    ) -> list[Enqueued]:
        """Enqueue jobs made by `job`, all or none, in one call; hundreds of thousands are fine.

        A job whose key another live job holds is not inserted; its entry names the holder. Nor is
        one that is there already, because it was sent before and the reply was lost.
        """
        wanted = list(jobs)
        store = self._store if connection is None else BorrowedConnection(connection)
        new = await store.enqueue_jobs(wanted)
        if len(new) == len(wanted):
            return [Enqueued(job.id, is_new=True) for job in wanted]
        inserted = set(new)
        holders: dict[UUID, UUID] = {}
        pending = [job for job in wanted if job.unique_key and job.id not in inserted]
        for _ in range(_KEY_TRIES):
            if not pending:
                break
            found = await store.find_unique([job.unique_key for job in pending if job.unique_key])
            holders.update(
                (job.id, found[job.unique_key]) for job in pending if job.unique_key in found
            )
            pending = [job for job in pending if job.unique_key not in found]
            if pending:
                inserted.update(await store.enqueue_jobs(pending))
                pending = [job for job in pending if job.id not in inserted]
        if pending:
            raise StoreUnavailable(f"enqueue_jobs: the key {pending[0].unique_key!r} kept changing")
        return [Enqueued(holders.get(job.id, job.id), is_new=job.id in inserted) for job in wanted]

    async def get(self, id: UUID) -> JobRecord:
        """The job with that id, live or ended."""
        found = await self._store.get_jobs([id])
        if id not in found:
            raise JobNotFound(f"no job has the id {id}")
        return found[id]

    async def lineage(self, id: UUID) -> Sequence[JobRecord]:
        """The attempts of the line that a supervised task belongs to, the first one first."""
        found = await self._store.list_lineage(id, PAGE_MAX)
        if not found:
            raise JobNotFound(f"no job has the id {id}")
        return found

    async def list(
        self,
        *,
        states: Sequence[State] | None = None,
        topic: str | None = None,
        kind: str | None = None,
        before: UUID | None = None,
        limit: int = 50,
    ) -> Page:
        """One page of jobs, newest first."""
        if not 1 <= limit <= PAGE_MAX:
            raise InputError(f"limit: {limit} is not from 1 to {PAGE_MAX}")
        if unknown := set(states or ()) - set(get_args(State)):
            raise InputError(
                f"states: {sorted(unknown)} are none; {', '.join(get_args(State))} are"
            )
        jobs = await self._store.list_jobs(
            states=states, topic=topic, kind=kind, before=before, limit=limit
        )
        return Page(jobs, jobs[-1].id if len(jobs) == limit else None)

    async def cancel(self, id: UUID) -> CancelResult:
        """Cancel a job: at once while it waits, by asking its handler to stop while it runs.

        `requested` is a wish: a handler that finishes first has finished, and the job's state
        says which of the two came first.
        """
        done = await self._store.cancel_jobs([id])
        if id not in done:
            ended = await self.get(id)
            raise JobStateError(f"job {id} has ended already: {ended.state}")
        return done[id]

    async def retry(self, id: UUID) -> None:
        """Bring a dead job back to life, with at least one more attempt."""
        if not await self._store.retry_jobs([id]):
            await self._refuse(id, "retried")

    async def discard(self, id: UUID) -> None:
        """Take a dead job off the dead letters; its record stays, as cancelled."""
        if not await self._store.discard_jobs([id]):
            await self._refuse(id, "discarded")

    async def _refuse(self, id: UUID, what: str) -> None:
        job = await self.get(id)
        raise JobStateError(f"job {id} is {job.state}: only a dead job can be {what}")

    async def counts(self) -> Counts:
        """How many jobs there are, at a cost that does not grow with them."""
        return Counts(
            await self._store.survey_topics(COUNT_BOUND),
            await self._store.count_history(COUNT_BOUND),
        )

    async def pause(self, topic: str = TOPIC_ALL) -> None:
        """Claim nothing more of a topic, or of all; what runs may finish."""
        await self._store.set_paused(checked_gate(topic), True)

    async def resume(self, topic: str = TOPIC_ALL) -> None:
        """Open the gate of a topic, or of all, again."""
        await self._store.set_paused(checked_gate(topic), False)

    async def gates(self) -> Sequence[Gate]:
        """The gates that have ever been touched."""
        return await self._store.list_gates()


@lru_cache(maxsize=1_000)  # Checked once and not for every job, which would cost each 0.2 µs.
def _rules_without_app(kind: str) -> Handler | NoHandler:
    return builtin_rules(checked_name(kind, "kind")) or NO_HANDLER


def _checked_wait(delay_s: float) -> float:
    if (waits_s := checked_delay(delay_s, "delay_s")) == delay_s:
        return delay_s
    raise InputError(f"delay_s: {delay_s} is longer than {waits_s:g}, a year; give run_at instead")
