"""Procrastinate, with its async connector and psycopg's compiled build, on uvloop.

A worker claims one job a statement, so what counts is round trips. The pool is told not to check
each connection first and not to open a transaction around each single statement: together that
is half as fast again as the defaults. With 30 jobs at once claims and completions overlap; 10
were slower, 100 no faster. Rows are kept; deleting them was no faster. Jobs go in by
`batch_defer`, 1,000 a call.
"""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from adapter import KIND, PAYLOAD, Enqueue, Started, main
from procrastinate import App, PsycopgConnector
from psycopg_pool import AsyncConnectionPool

CONCURRENCY = 30
CONNECTIONS = 10
CHUNK = 1_000


class Procrastinate:
    """An app per use, each with a pool of its own."""

    async def prepare(self, dsn: str) -> None:
        """As `procrastinate schema --apply`."""
        async with _app(dsn).open_async() as app:
            await app.schema_manager.apply_schema_async()

    async def load(self, dsn: str, count: int) -> float:
        """Calls of `CHUNK` jobs, one after another."""
        async with _app(dsn).open_async() as app:
            deferrer = app.configure_task(KIND)
            started = time.perf_counter()
            for start in range(0, count, CHUNK):
                await deferrer.batch_defer_async(*[PAYLOAD] * min(CHUNK, count - start))
            return time.perf_counter() - started

    async def work(self, dsn: str, started: Started) -> None:
        """Woken by notifications, which are on by default."""
        async with _app(dsn).open_async() as app:

            @app.task(name=KIND)
            async def noop(n: int) -> None:
                started()

            await app.run_worker_async(concurrency=CONCURRENCY, install_signal_handlers=False)

    @asynccontextmanager
    async def producer(self, dsn: str) -> AsyncIterator[Enqueue]:
        """One job a call."""
        async with _app(dsn).open_async() as app:
            yield lambda: app.configure_task(KIND).defer_async(**PAYLOAD)


def _app(dsn: str) -> App:
    return App(
        connector=PsycopgConnector(
            conninfo=dsn,
            min_size=CONNECTIONS,
            max_size=CONNECTIONS,
            configure=lambda connection: connection.set_autocommit(True),
            pool_factory=_unchecked_pool,
        )
    )


def _unchecked_pool(**options: Any) -> AsyncConnectionPool:
    return AsyncConnectionPool(**options | {"check": None})


if __name__ == "__main__":
    main(Procrastinate())
