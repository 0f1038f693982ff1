"""Offers on Postgres: one method, one statement of `schema/queries`, one round trip."""

from collections.abc import Sequence
from uuid import UUID

import msgspec

from chronos_runtime.job import Job
from chronos_runtime.store.lane import Lane
from chronos_runtime.store.offers import Offer


class PostgresOffers:
    """The offers of workers that have nothing to do."""

    def __init__(self, claim: Lane) -> None:
        self._claim = claim

    async def place_offer(self, offer: Offer, over: Sequence[UUID] = ()) -> None:
        await self._claim.fetch("place_offer", *msgspec.structs.astuple(offer), over)

    async def withdraw_offer(self, worker: UUID, token: UUID) -> bool:
        return bool(await self._claim.fetch("withdraw_offer", worker, token))

    async def take_job(
        self, id: UUID, token: UUID, *, lease_s: float, asked_at: float
    ) -> Job | None:
        rows = await self._claim.fetch("take_job", id, token, lease_s)
        if not rows:
            return None
        lease = (token, asked_at - rows[0]["held_s"])
        return Job(*(rows[0][:-1] + lease))
