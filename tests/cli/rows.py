"""Jobs for the commands to act on, made and ended without a worker."""

from typing import Any

import anyio
import asyncpg

from chronos_runtime.config import DatabaseConfig
from chronos_runtime.ids import Worker
from chronos_runtime.job import Finish
from chronos_runtime.store import Wanted
from chronos_runtime.store.postgres import PostgresStore
from tests.cli.program import Cli


def execute(dsn: str, statement: str, *arguments: object) -> list[dict[str, Any]]:
    async def ask() -> list[dict[str, Any]]:
        connection = await asyncpg.connect(dsn)
        try:
            return [dict(row) for row in await connection.fetch(statement, *arguments)]
        finally:
            await connection.close()

    return anyio.run(ask)


def enqueued(cli: Cli, *arguments: object) -> str:
    return str(cli("enqueue", *arguments, "--json").json["id"])


def end_all(dsn: str, state: Any, error: str | None = None) -> None:
    """Claim and finish every ready job of the default topic, as a worker would."""

    async def work() -> None:
        store = PostgresStore(DatabaseConfig(dsn=dsn))
        jobs = await store.claim_jobs(
            Worker().next_token(),
            [Wanted("default", 1_000, [0] * 10)],
            kinds=["greet"],
            room=1_000,
            lease_s=30,
            claimed_at=0.0,
        )
        await store.finish_jobs([Finish(job, state, 0.5, error=error) for job in jobs])
        await store.close()

    anyio.run(work)
