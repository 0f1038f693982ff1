"""A store, a clock that can be pushed, and the few words the contract's tests are written in."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg
import msgspec

from chronos_runtime.config import DatabaseConfig
from chronos_runtime.ids import Worker, new_job_id, new_job_ids
from chronos_runtime.job import Finish, Job, Return
from chronos_runtime.store import Claimed, Heard, JobRecord, NewJob, Store, Wanted, WorkerInfo
from chronos_runtime.store.memory import MemoryStore
from chronos_runtime.store.migrations import Connection
from chronos_runtime.store.offers import Offer
from chronos_runtime.store.postgres import PostgresStore

FIRST = UUID(int=0)
PRESENCE = 2**63 - 1  # The greatest there is.
NO_FRONTIER = [0] * 10
START_S = 1_800_000_000.0  # 2027-01-15 08:00 UTC: far from midnight.

# Time passes in a database by moving everything in it into the past.
_PASS_TIME = """
with live as (
    update chronos.jobs
    set run_at = run_at - $1::interval, enqueued_at = enqueued_at - $1,
        lease_until = lease_until - $1, occurrence = occurrence - $1
),
ended as (
    update chronos.job_history
    set run_at = run_at - $1, enqueued_at = enqueued_at - $1, finished_at = finished_at - $1,
        occurrence = occurrence - $1
),
schedules as (
    update chronos.schedules
    set next_run_at = next_run_at - $1, queued_at = queued_at - $1,
        last_occurrence = last_occurrence - $1, last_fire_at = last_fire_at - $1,
        last_ended_at = last_ended_at - $1, last_success_at = last_success_at - $1,
        absent_at = absent_at - $1, created_at = created_at - $1, updated_at = updated_at - $1
),
claims as (
    update chronos.claims set look_at = look_at - $1
),
marks as (
    update chronos.idle_marks set marked_at = marked_at - $1
),
offers as (
    update chronos.offers set offered_at = offered_at - $1
)
update chronos.workers set seen_at = seen_at - $1
"""


def new_job(**changes: Any) -> NewJob:
    """A job like any other, but for the changes."""
    plain: dict[str, Any] = {
        "id": new_job_id(),
        "kind": "greet",
        "payload": "{}",
        "topic": "default",
        "priority": 5,
        "max_attempts": 5,
    }
    return NewJob(**(plain | changes))


def claimed(job: Job) -> Claimed:
    """The fence of a claimed job."""
    return Claimed(job.id, job.lease_token, job.attempt)


def error_of(worker: Worker, job: Job, message: str = "boom") -> str:
    """The record of a failure, as a worker writes it."""
    record = {
        "type": "ValueError",
        "message": message,
        "attempt": job.attempt,
        "worker": worker.name,
    }
    return msgspec.json.encode(record).decode()


class World(ABC):
    """One store under test."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.worker = Worker()
        self.other_worker = Worker()

    @abstractmethod
    async def pass_time(self, seconds: float) -> None:
        """Let time pass, as far as the store can tell."""

    async def enqueue(self, count: int = 1, **changes: Any) -> list[UUID]:
        """Enqueue `count` equal jobs; their ids in the order of claims."""
        ids = new_job_ids(count)
        jobs = [new_job(**(changes | {"id": id})) for id in ids]
        assert set(await self.store.enqueue_jobs(jobs)) == set(ids)
        return ids

    async def claim(
        self,
        worker: Worker | None = None,
        *,
        topics: Sequence[str] = ("default",),
        room: int = 1_000,
        frontiers: list[int] = NO_FRONTIER,
        ends: list[int] | None = None,
        kinds: Sequence[str] = ("greet",),
        lease_s: float = 30.0,
        token: UUID | None = None,
    ) -> list[Job]:
        """Claim whatever there is."""
        return await self.store.claim_jobs(
            token or (worker or self.worker).next_token(),
            [Wanted(topic, room, frontiers, ends) for topic in topics],
            kinds=kinds,
            room=room,
            lease_s=lease_s,
            claimed_at=7.0,
        )

    async def claim_one(self, worker: Worker | None = None, **changes: Any) -> Job:
        """Enqueue one job and claim it; it must stand in front of what waits."""
        [id] = await self.enqueue(**changes)
        [job] = await self.claim(worker, topics=[changes.get("topic", "default")], room=1)
        assert job.id == id
        return job

    async def offer(self, worker: Worker | None = None, **changes: Any) -> Offer:
        """Let a worker offer to take a job; see `listen` for its presence."""
        worker = worker or self.worker
        plain: dict[str, Any] = {
            "worker": worker.id,
            "token": worker.next_token(),
            "presence": PRESENCE,
            "lease_s": 30.0,
            "topics": ["default"],
            "kinds": ["greet"],
        }
        offer = Offer(**(plain | changes))
        await self.store.offers.place_offer(offer)
        return offer

    def info(self) -> WorkerInfo:
        """What the worker says about itself."""
        return WorkerInfo(self.worker.id, "here", 1, "0", ["default"], ["greet"])

    async def take(self, id: UUID, offer: Offer) -> Job | None:
        """Take a job that was handed over."""
        return await self.store.offers.take_job(
            id, offer.token, lease_s=offer.lease_s, asked_at=100.0
        )

    async def listen(
        self, heard: Heard, *, presence: int = PRESENCE, probe_s: float = 3_600.0
    ) -> None:
        """Listen until cancelled."""
        await self.store.listen(heard, presence=presence, probe_s=probe_s, probe_deadline_s=10.0)

    async def lose_lease(self, job: Job) -> None:
        """Let the lease of a job run out, and have it reaped."""
        await self.pass_time(3_600)
        reaped = await self.store.reap_jobs(limit=1_000, after=FIRST)
        assert job.id in {one.id for one in reaped}

    async def make_dead(self, **changes: Any) -> UUID:
        """Enqueue a job, claim it and let it end dead."""
        job = await self.claim_one(**changes)
        await self.finish(job, "dead", error=error_of(self.worker, job))
        return job.id

    async def finish(self, job: Job, state: Any = "succeeded", **changes: Any) -> bool:
        """Finish one job; whether the claim still stood."""
        ended = await self.store.finish_jobs([Finish(job, state, 0.5, **changes)])
        return list(ended) == [job.id]

    async def give_back(self, job: Job, why: Any = "retry", **changes: Any) -> str | None:
        """Return one job; the state it went to, None when the claim was lost."""
        return (await self.store.return_jobs([Return(job, why, **changes)])).get(job.id)

    async def get(self, id: UUID) -> JobRecord:
        """Read one job."""
        return (await self.store.get_jobs([id]))[id]

    async def states(self, ids: Sequence[UUID]) -> list[str]:
        """The states of jobs, in that order."""
        records = await self.store.get_jobs(ids)
        return [records[id].state for id in ids]


class MemoryWorld(World):
    """The model."""

    def __init__(self) -> None:
        self.now = START_S
        super().__init__(MemoryStore(clock=lambda: self.now))

    async def pass_time(self, seconds: float) -> None:
        self.now += seconds


class PostgresWorld(World):
    """The real one."""

    def __init__(self, dsn: str, back_door: Connection) -> None:
        super().__init__(PostgresStore(DatabaseConfig(dsn=dsn)))
        self.back_door = back_door

    async def pass_time(self, seconds: float) -> None:
        await self.back_door.execute(_PASS_TIME, timedelta(seconds=seconds))


@asynccontextmanager
async def open_world(dsn: str | None) -> AsyncIterator[World]:
    """An empty world: the database at `dsn`, or memory."""
    if dsn is None:
        yield MemoryWorld()
        return
    back_door = await asyncpg.connect(dsn)
    world = PostgresWorld(dsn, back_door)
    try:
        yield world
    finally:
        await world.store.close()
        await back_door.close()
