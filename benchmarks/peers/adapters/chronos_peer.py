"""Chronos Runtime, with its default settings.

As `chronos-runtime run` does: uvloop, and garbage collected less. Jobs go in by `enqueue_many`,
which copies them, in one call.
"""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import asyncpg
from adapter import KIND, PAYLOAD, Enqueue, Started, main

from chronos_runtime import Chronos, Client, Config, Job, Runtime
from chronos_runtime.config import DatabaseConfig, ExporterConfig
from chronos_runtime.garbage import collect_less
from chronos_runtime.store.migrations import migrate


class ChronosSystem:
    """Client and runtime, in this checkout."""

    async def prepare(self, dsn: str) -> None:
        """As `chronos-runtime migrate`."""
        connection = await asyncpg.connect(dsn)
        await migrate(connection)
        await connection.close()

    async def load(self, dsn: str, count: int) -> float:
        """One transaction."""
        async with Client.connect(dsn) as client:
            await client.gates()  # Opens the connection.
            started = time.perf_counter()
            await client.enqueue_many(client.job(KIND, PAYLOAD) for _ in range(count))
            return time.perf_counter() - started

    async def work(self, dsn: str, started: Started) -> None:
        """All actors; the exporter takes any free port."""
        collect_less()
        app = Chronos()

        @app.handler(KIND)
        async def noop(job: Job, payload: dict[str, int]) -> None:
            started()

        config = Config(database=DatabaseConfig(dsn=dsn), exporter=ExporterConfig(port=0))
        await Runtime(app, config).run(anyio.Event())

    @asynccontextmanager
    async def producer(self, dsn: str) -> AsyncIterator[Enqueue]:
        """A client of its own."""
        async with Client.connect(dsn) as client:
            yield lambda: client.enqueue(KIND, PAYLOAD)


if __name__ == "__main__":
    main(ChronosSystem())
