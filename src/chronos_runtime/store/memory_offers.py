"""The offers of a `MemoryStore`, and the handing over of jobs to them."""

from collections.abc import Awaitable, Callable, Sequence
from uuid import UUID

from chronos_runtime.job import Job
from chronos_runtime.store.memory_bell import Bell
from chronos_runtime.store.memory_gates import Gates
from chronos_runtime.store.memory_jobs import Jobs
from chronos_runtime.store.memory_row import Row
from chronos_runtime.store.offers import Offer

_RECENT = 200  # As 0008_offers.sql: nobody looks at what is older.


class MemoryOffers:
    """The rows of `chronos.offers`."""

    def __init__(
        self, jobs: Jobs, gates: Gates, bell: Bell, begin: Callable[[], Awaitable[float]]
    ) -> None:
        self._jobs = jobs
        self._gates = gates
        self._bell = bell
        self._begin = begin
        self._offers: dict[UUID, tuple[int, Offer, float]] = {}  # By token, with its number.
        self._numbers = 0

    async def place_offer(self, offer: Offer, over: Sequence[UUID] = ()) -> None:
        now = await self._begin()
        self._numbers += 1
        self._offers[offer.token] = (self._numbers, offer, now)

    async def withdraw_offer(self, worker: UUID, token: UUID) -> bool:
        await self._begin()
        for offer in self._recent():
            if (offer.worker, offer.token) == (worker, token):
                del self._offers[token]
                return True
        return False

    def _recent(self) -> list[Offer]:
        """The offers that anybody looks at, the oldest first."""
        oldest = self._numbers - _RECENT
        return [offer for number, offer, _ in self._offers.values() if number > oldest]

    async def take_job(
        self, id: UUID, token: UUID, *, lease_s: float, asked_at: float
    ) -> Job | None:
        now = await self._begin()
        row = self._jobs.live.get(id)
        if row is None or row.lease_token != token or row.lease_until is None:
            return None
        held_s = now + lease_s - row.lease_until
        if held_s >= lease_s / 2:
            return None
        return row.claimed(row.run_at, asked_at - held_s)

    def hand_over(self, row: Row, now: float) -> bool:
        """Lease a new job to whoever offered to take it, and tell him; whether there is anybody."""
        if not self._bell.is_marked(row.topic) or not self._gates.is_open(row.topic):
            return False
        for offer in self._recent():
            is_for_it = row.topic in offer.topics and row.kind in offer.kinds
            if is_for_it and self._bell.is_present(offer.presence):
                del self._offers[offer.token]
                row.lease(offer.token, now + offer.lease_s)
                self._bell.hand_over(offer.presence, f"{offer.token} {row.id}")
                return True
        return False

    def forget(self, worker: UUID) -> None:
        """It left."""
        self._keep(lambda offer, _: offer.worker != worker)

    def prune(self, before: float, seen: set[UUID]) -> None:
        """Forget what was offered before that by whoever is not among the workers seen since."""
        self._keep(lambda offer, at: at >= before or offer.worker in seen)

    def _keep(self, is_kept: Callable[[Offer, float], bool]) -> None:
        self._offers = {
            token: (number, offer, at)
            for token, (number, offer, at) in self._offers.items()
            if is_kept(offer, at)
        }
