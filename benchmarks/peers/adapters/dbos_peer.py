"""DBOS Transact, each job a workflow without steps on a queue.

It does more than a queue does: inputs and outcome of every workflow are recorded for recovery.
The queue is polled, there is no notification for it: every 10 ms instead of every second. 100
workflows at once on ten threads with a connection each; more threads only wait for one another,
and async workflows were no faster. Workflows go in by `enqueue_in_transaction`, all in one, which
is half as fast again as a transaction each; there is no bulk call.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import sqlalchemy
from adapter import KIND, PAYLOAD, Enqueue, Started, main
from dbos import DBOS, DBOSClient

CONCURRENCY = 100
THREADS = 10
POLL_S = 0.01
QUEUE = "bench"
OPTIONS = {"queue_name": QUEUE, "workflow_name": KIND}


class Dbos:
    """Synchronous at heart, so everything happens on threads."""

    async def prepare(self, dsn: str) -> None:
        """Launching makes the schema."""
        await asyncio.to_thread(_launch, dsn, lambda: None)
        await asyncio.to_thread(DBOS.destroy, destroy_registry=True)

    async def load(self, dsn: str, count: int) -> float:
        """One transaction."""
        return await asyncio.to_thread(_load, dsn, count)

    async def work(self, dsn: str, started: Started) -> None:
        """Launching starts the threads that poll and run."""
        await asyncio.to_thread(_launch, dsn, started)
        await asyncio.Event().wait()

    @asynccontextmanager
    async def producer(self, dsn: str) -> AsyncIterator[Enqueue]:
        """One workflow a call."""
        client = await asyncio.to_thread(lambda: DBOSClient(system_database_url=dsn))
        yield lambda: client.enqueue_async(OPTIONS, **PAYLOAD)


def _launch(dsn: str, started: Started) -> None:
    DBOS(
        config={
            "name": "bench",
            "system_database_url": dsn,
            "sys_db_pool_size": THREADS,
            "max_executor_threads": THREADS,
            "log_level": "ERROR",
            "application_version": "1",
        }
    )

    @DBOS.workflow(name=KIND)
    def noop(n: int) -> None:
        started()

    DBOS.launch()
    DBOS.register_queue(QUEUE, worker_concurrency=CONCURRENCY, polling_interval_sec=POLL_S)


def _load(dsn: str, count: int) -> float:
    client = DBOSClient(system_database_url=dsn)
    engine = sqlalchemy.create_engine(dsn.replace("postgresql:", "postgresql+psycopg:"))
    with engine.connect() as connection:
        started = time.perf_counter()
        with connection.begin():
            for _ in range(count):
                client.enqueue_in_transaction(connection, OPTIONS, **PAYLOAD)
        return time.perf_counter() - started


if __name__ == "__main__":
    main(Dbos())
