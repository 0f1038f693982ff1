"""A store in memory that fails when it is told to: before a write, after it, or by taking long."""

from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar
from uuid import UUID

import anyio
import msgspec

from chronos_runtime.job import Finishes, Job, Return
from chronos_runtime.store import Checked, Claimed, Promotion, Reaped, Wanted
from chronos_runtime.store.memory import MemoryStore

T = TypeVar("T")


class Before(msgspec.Struct):
    """The statement never reached the database."""

    error: Exception


class After(msgspec.Struct):
    """The statement was carried out; its reply was lost."""

    error: Exception


class Hold(msgspec.Struct):
    """The statement takes until the event is set."""

    until: anyio.Event


class Miss(msgspec.Struct):
    """The statement matched nothing, as behind a lock or on an old snapshot."""


Fault = Before | After | Hold | Miss


class FlakyStore(MemoryStore):
    """Faults come in the order they were given to a statement; none left, all is well."""

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        if clock is None:
            super().__init__()
        else:
            super().__init__(clock)
        self.faults: defaultdict[str, deque[Fault]] = defaultdict(deque)
        self.calls: defaultdict[str, list[int]] = defaultdict(list)
        """The sizes of the batches each statement was given."""

    def fail(self, statement: str, *faults: Fault) -> None:
        """The next calls of `statement` meet these."""
        self.faults[statement].extend(faults)

    async def _call(
        self, statement: str, size: int, carry_out: Callable[[], Awaitable[T]], nothing: T
    ) -> T:
        self.calls[statement].append(size)
        fault = self.faults[statement].popleft() if self.faults[statement] else None
        match fault:
            case Before(error):
                raise error
            case After(error):
                await carry_out()
                raise error
            case Hold(until):
                await until.wait()
            case Miss():
                return nothing
        return await carry_out()

    async def claim_jobs(
        self,
        token: UUID,
        wanted: Sequence[Wanted],
        *,
        kinds: Sequence[str],
        room: int,
        lease_s: float,
        claimed_at: float,
        over: Sequence[UUID] = (),
    ) -> list[Job]:
        def carry_out() -> Awaitable[list[Job]]:
            return super(FlakyStore, self).claim_jobs(
                token,
                wanted,
                kinds=kinds,
                room=room,
                lease_s=lease_s,
                claimed_at=claimed_at,
                over=over,
            )

        return await self._call("claim_jobs", room, carry_out, [])

    async def release_claim(self, token: UUID) -> int:
        parent = super().release_claim
        return await self._call("release_claim", 1, lambda: parent(token), 0)

    async def finish_jobs(self, finishes: Finishes) -> set[UUID]:
        parent = super().finish_jobs
        return await self._call("finish_jobs", len(finishes), lambda: parent(finishes), set())

    async def return_jobs(self, returns: Sequence[Return]) -> dict[UUID, str]:
        parent = super().return_jobs
        return await self._call("return_jobs", len(returns), lambda: parent(returns), {})

    async def verify_claims(self, claims: Sequence[Claimed], worker: str) -> dict[UUID, Checked]:
        parent = super().verify_claims
        return await self._call("verify_claims", len(claims), lambda: parent(claims, worker), {})

    async def extend_leases(self, claims: Sequence[Claimed], lease_s: float) -> dict[UUID, bool]:
        parent = super().extend_leases
        return await self._call("extend_leases", len(claims), lambda: parent(claims, lease_s), {})

    async def reap_jobs(
        self, *, limit: int, after: UUID, dead_worker: tuple[UUID, UUID] | None = None
    ) -> list[Reaped]:
        parent = super().reap_jobs
        return await self._call(
            "reap_jobs",
            limit,
            lambda: parent(limit=limit, after=after, dead_worker=dead_worker),
            [],
        )

    async def promote_jobs(self, limit: int) -> Promotion:
        parent = super().promote_jobs
        return await self._call("promote_jobs", limit, lambda: parent(limit), Promotion(0, None))

    async def mark_idle(self, worker: UUID, topics: Sequence[str]) -> None:
        parent = super().mark_idle
        await self._call("mark_idle", len(topics), lambda: parent(worker, topics), None)

    async def unmark_idle(self, worker: UUID) -> None:
        parent = super().unmark_idle
        await self._call("unmark_idle", 1, lambda: parent(worker), None)
