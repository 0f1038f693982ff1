"""Queues of millions: filled by one statement inside the server, kept, and copied for each round.

A copy of a database has its pages, its visibility map and its planner's statistics, so every
round begins as its original was left: vacuumed, analysed, and with nothing dead.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg

from benchmarks.server import Server, fresh_database
from chronos_runtime.config import DatabaseConfig

# As a client's jobs are: ids in order of time, seq in order of arrival, a small payload.
_FILL = """
    insert into chronos.jobs (id, kind, payload)
    select uuidv7(), $1, '{"n": 1}'
    from generate_series(1, $2::bigint)
"""


async def fill(config: DatabaseConfig, jobs: int, kind: str) -> None:
    """Enqueue `jobs` plain jobs, and leave the table as a quiet minute would."""
    connection = await asyncpg.connect(config.dsn)
    try:
        await connection.execute(_FILL, kind, jobs)
        await connection.execute("vacuum (analyze) chronos.jobs")
        await connection.execute("checkpoint")
    finally:
        await connection.close()


@asynccontextmanager
async def filled_database(server: Server, jobs: int, kind: str) -> AsyncIterator[str]:
    """The name of a database with `jobs` ready jobs, to copy; nobody connects to it."""
    name = f"filled_{jobs}"
    async with fresh_database(server) as config:
        await fill(config, jobs, kind)
        await _execute(server, f"alter database bench rename to {name}")
    try:
        yield name
    finally:
        await _execute(server, f"drop database {name} with (force)")


@asynccontextmanager
async def copied_database(server: Server, name: str) -> AsyncIterator[DatabaseConfig]:
    """A copy of the database of that name for one round, dropped afterwards.

    Copied file by file: page by page through the log would leave the log, and its flushing, to
    the round. Each file is flushed here.
    """
    copy = f"{name}_copy"
    try:
        await _execute(server, f"create database {copy} template {name} strategy file_copy")
        yield DatabaseConfig(dsn=server.dsn_of(copy))
    finally:
        await _execute(server, f"drop database if exists {copy} with (force)")


async def _execute(server: Server, *statements: str) -> None:
    connection = await asyncpg.connect(server.dsn)
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()
