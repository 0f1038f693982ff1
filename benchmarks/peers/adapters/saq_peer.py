"""SAQ on its Postgres queue, with psycopg's compiled build, on uvloop.

A claim brings as many jobs as there are idle slots, so there are 100; each job still costs
statements of its own to start and to finish. The pool is our own, which does not check each
connection before use, and a `ttl` of -1 deletes a job when it is done: a third faster than
keeping it. There is no bulk call, so ten tasks enqueue at once, one connection each.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from adapter import KIND, PAYLOAD, Enqueue, Started, main
from psycopg_pool import AsyncConnectionPool
from saq import Worker
from saq.queue.postgres import PostgresQueue

CONCURRENCY = 100
CONNECTIONS = 10
DELETE_WHEN_DONE = -1


class Saq:
    """A pool per use."""

    async def prepare(self, dsn: str) -> None:
        """Connecting makes the schema."""
        async with _queue(dsn):
            pass

    async def load(self, dsn: str, count: int) -> float:
        """As many producers as connections."""
        async with _queue(dsn) as queue:
            jobs = iter(range(count))

            async def produce() -> None:
                for _ in jobs:
                    await queue.enqueue(KIND, ttl=DELETE_WHEN_DONE, **PAYLOAD)

            started = time.perf_counter()
            await asyncio.gather(*(produce() for _ in range(CONNECTIONS)))
            return time.perf_counter() - started

    async def work(self, dsn: str, started: Started) -> None:
        """Woken by notifications: a `poll_interval` of 0, the default."""

        async def noop(context: dict[str, object], *, n: int) -> None:
            started()

        async with _queue(dsn) as queue:
            await Worker(queue, [(KIND, noop)], concurrency=CONCURRENCY).start()

    @asynccontextmanager
    async def producer(self, dsn: str) -> AsyncIterator[Enqueue]:
        """One job a call."""
        async with _queue(dsn) as queue:
            yield lambda: queue.enqueue(KIND, ttl=DELETE_WHEN_DONE, **PAYLOAD)


@asynccontextmanager
async def _queue(dsn: str) -> AsyncIterator[PostgresQueue]:
    async with AsyncConnectionPool(
        dsn,
        min_size=CONNECTIONS,
        max_size=CONNECTIONS,
        kwargs={"autocommit": True},
        open=False,
    ) as pool:
        queue = PostgresQueue(pool)
        await queue.connect()
        yield queue


if __name__ == "__main__":
    main(Saq())
