"""Enqueues, and remembers what was acknowledged."""

from typing import Any
from uuid import UUID

import anyio

from chronos_runtime.client import Client
from chronos_runtime.errors import StoreUnavailable

PAUSE_S = 0.02  # Between two batches: a steady stream, not a flood.


async def enqueue(
    client: Client, kind: str, count: int = 1, payload: object = None, **options: Any
) -> list[UUID]:
    """Enqueue `count` jobs in one call; their ids."""
    jobs = [client.job(kind, payload or {}, **options) for _ in range(count)]
    return [enqueued.id for enqueued in await client.enqueue_many(jobs)]


class Stream:
    """A producer that never stops for an outage, and sends nothing twice."""

    def __init__(self, client: Client, kind: str, payload: object, *, batch: int) -> None:
        self._client = client
        self._kind = kind
        self._payload = payload
        self._batch = batch
        self.acknowledged: list[UUID] = []
        self.refused = 0
        self.stop = anyio.Event()

    async def run(self) -> None:
        """Enqueue until told to stop."""
        while not self.stop.is_set():
            try:
                self.acknowledged += await enqueue(
                    self._client, self._kind, self._batch, self._payload
                )
            except StoreUnavailable:
                self.refused += 1  # Perhaps in, perhaps not: nothing was promised.
            await anyio.sleep(PAUSE_S)
