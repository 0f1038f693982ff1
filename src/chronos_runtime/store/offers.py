"""What is asked of durable state about offers; the manners are the store's."""

from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

import msgspec

from chronos_runtime.job import Job


class Offer(msgspec.Struct, frozen=True):
    """A worker's standing word that it would take one job at once."""

    worker: UUID
    token: UUID
    """The lease token of the job that is handed over."""
    presence: int
    """Of the listener that would hear of it: without that listener nobody hands anything over."""
    lease_s: float
    topics: Sequence[str]
    kinds: Sequence[str]


class OfferStore(Protocol):
    """Offers, one method per statement.

    `Store.enqueue_jobs` of a single plain job of a marked topic takes one up: the job is leased
    from the beginning, and whoever offered hears of it on `chronos_handed`, token and id.
    """

    async def place_offer(self, offer: Offer, over: Sequence[UUID] = ()) -> None:
        """Offer; `over` as in `claim_jobs`. After two hundred newer ones nobody looks at it."""

    async def withdraw_offer(self, worker: UUID, token: UUID) -> bool:
        """Take an offer back; False if it was taken up, or is not out."""

    async def take_job(
        self, id: UUID, token: UUID, *, lease_s: float, asked_at: float
    ) -> Job | None:
        """The job that was handed over; None if it is not ours, or not for half a lease more.

        `asked_at` is the caller's monotonic clock, by which the job counts as claimed when it was
        leased.
        """
