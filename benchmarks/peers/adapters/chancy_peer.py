"""Chancy, with its asyncio executor and psycopg's compiled build, on uvloop.

Concurrency is also how many jobs a claim may bring: 1,000, as many as it completes in one
transaction. Eager polling claims again as soon as jobs are done, and completions are sent every
10 ms instead of every second, which costs the drain nothing. Its log, a line for each job, is
off. Jobs go in by `push_many`, 1,000 a transaction.
"""

import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from adapter import PAYLOAD, Enqueue, Started, main
from chancy import Chancy, Queue, Worker, job

CONCURRENCY = 1_000
CHUNK = 1_000
SEND_INTERVAL_S = 0.01
QUEUE = "bench"

_started: list[Started] = []  # A job is found by its name, so it can carry nothing along.


@job(queue=QUEUE)
async def noop(*, n: int) -> None:
    """Do nothing."""
    _started[0]()


class ChancySystem:
    """A pool per use."""

    async def prepare(self, dsn: str) -> None:
        """The schema, and the queue with its settings."""
        async with _chancy(dsn) as chancy:
            await chancy.migrate()
            await chancy.declare(
                Queue(
                    QUEUE,
                    concurrency=CONCURRENCY,
                    executor=Chancy.Executor.Async,
                    polling_interval=1,
                    eager_polling=True,
                )
            )

    async def load(self, dsn: str, count: int) -> float:
        """Transactions of `CHUNK` jobs, one after another."""
        async with _chancy(dsn) as chancy:
            jobs = [noop.job.with_kwargs(**PAYLOAD)] * count
            started = time.perf_counter()
            async for _ in chancy.push_many(jobs, batch_size=CHUNK):
                pass
            return time.perf_counter() - started

    async def work(self, dsn: str, started: Started) -> None:
        """Woken by notifications, which are on by default."""
        _started.append(started)
        async with _chancy(dsn) as chancy:
            worker = Worker(chancy, register_signal_handlers=False)
            worker.send_outgoing_interval = SEND_INTERVAL_S
            async with worker:
                await worker.wait_for_shutdown()

    @asynccontextmanager
    async def producer(self, dsn: str) -> AsyncIterator[Enqueue]:
        """One job a call."""
        async with _chancy(dsn) as chancy:
            one = noop.job.with_kwargs(**PAYLOAD)
            yield lambda: chancy.push(one)


def _chancy(dsn: str) -> Chancy:
    return Chancy(dsn, log=logging.getLogger("quiet"))


if __name__ == "__main__":
    main(ChancySystem())
