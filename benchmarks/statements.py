"""The statements of a runtime in this process, one by one: how long each took, what it sent.

Measured where the runtime hands a statement to its connections, so a time holds the wait for a
free one, the way to the server and back, and whatever the event loop did meanwhile.
"""

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch
from uuid import uuid4

import asyncpg

from chronos_runtime.config import DatabaseConfig
from chronos_runtime.store.lane import Lane
from chronos_runtime.store.postgres import PostgresStore
from chronos_runtime.store.sql import query

CLAIM = "claim_jobs"
REAP = "reap_jobs"
SURVEY = "survey_topics"

# Heap and indexes, hits and reads alike, as far as this connection has touched them.
_PAGES = """
    select pg_stat_get_xact_blocks_fetched('chronos.jobs'::regclass)
        + sum(pg_stat_get_xact_blocks_fetched(indexrelid))::bigint
    from pg_catalog.pg_index
    where indrelid = 'chronos.jobs'::regclass
"""


class Statements:
    """What was seen of them."""

    def __init__(self) -> None:
        self._seconds: defaultdict[str, list[float]] = defaultdict(list)
        self._arguments: dict[str, tuple[object, ...]] = {}

    def note(self, statement: str, seconds: float, arguments: tuple[object, ...]) -> None:
        """One more."""
        self._seconds[statement].append(seconds)
        self._arguments[statement] = arguments

    def times_ms(self, statement: str) -> list[float]:
        """How long each took, in order."""
        return [1000 * seconds for seconds in self._seconds[statement]]

    async def pages(self, config: DatabaseConfig, statement: str) -> tuple[int, int]:
        """Do the last one of these once more as it was sent; the pages touched, the rows it gave.

        On a connection as the runtime's are, so with the same plan. It is rolled back. A claim gets
        a token of its own: that of the one before is taken.
        """
        arguments = self._arguments[statement]
        if statement == CLAIM:
            arguments = (uuid4(), *arguments[1:])
        connection = await PostgresStore(config).connect()
        transaction = connection.transaction()
        await transaction.start()
        try:
            rows = await connection.fetch(query(statement), *arguments)
            return int(await connection.fetchval(_PAGES)), len(rows)
        finally:
            await transaction.rollback()
            await connection.close()


@contextmanager
def watched_statements() -> Iterator[Statements]:
    """Watch the statements of every runtime that runs in this block.

    A claim that found nothing is left out: it came before the gate was open.
    """
    statements, fetch = Statements(), Lane.fetch

    async def watched(self: Lane, statement: str, *arguments: object) -> list[asyncpg.Record]:
        started = time.perf_counter()
        rows = await fetch(self, statement, *arguments)
        if rows or statement != CLAIM:
            statements.note(statement, time.perf_counter() - started, arguments)
        return rows

    with patch.object(Lane, "fetch", watched):
        yield statements
