"""PgQueuer, with its fastest driver, asyncpg, on uvloop.

A batch of 1,000 is claimed and completed at once; the default is 10. With 100 and with 5,000 it
drained a fifth slower. A pool of connections lets completions run beside claims, for another
tenth. `max_concurrent_tasks` is left out: its limit adds to the claim, and cost a fifth. The
tables keep the default durability, all logged. Jobs go in by `enqueue` with lists, 2,000 a call:
fewer and more were slower.
"""

import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
from adapter import KIND, PAYLOAD, Enqueue, Started, main
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries

BATCH = 1_000
CONNECTIONS = 4  # One of them listens.
CHUNK = 2_000

_PAYLOAD = json.dumps(PAYLOAD).encode()


class PgQueuerSystem:
    """Queries on one connection, a worker on a pool."""

    async def prepare(self, dsn: str) -> None:
        """As `pgq install`."""
        connection = await asyncpg.connect(dsn)
        await Queries(AsyncpgDriver(connection)).install()

    async def load(self, dsn: str, count: int) -> float:
        """Calls of `CHUNK` jobs, one after another."""
        queries = Queries(AsyncpgDriver(await asyncpg.connect(dsn)))
        started = time.perf_counter()
        for start in range(0, count, CHUNK):
            size = min(CHUNK, count - start)
            await queries.enqueue([KIND] * size, [_PAYLOAD] * size, [0] * size)
        return time.perf_counter() - started

    async def work(self, dsn: str, started: Started) -> None:
        """Woken by notifications."""
        pool = await asyncpg.create_pool(dsn, min_size=CONNECTIONS, max_size=CONNECTIONS)
        queuer = PgQueuer.from_asyncpg_pool(pool)

        @queuer.entrypoint(KIND)
        async def noop(job: Job) -> None:
            started()

        await queuer.run(batch_size=BATCH)

    @asynccontextmanager
    async def producer(self, dsn: str) -> AsyncIterator[Enqueue]:
        """One job a call."""
        queries = Queries(AsyncpgDriver(await asyncpg.connect(dsn)))
        yield lambda: queries.enqueue(KIND, _PAYLOAD)


if __name__ == "__main__":
    main(PgQueuerSystem())
