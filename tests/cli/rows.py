"""Jobs for the commands to act on, made and ended without a worker."""

from typing import Any

import anyio
import asyncpg

from chronos_runtime.config import DatabaseConfig
from chronos_runtime.fires import firing_of
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


def end_all(
    dsn: str, state: Any, error: str | None = None, *, topic: str = "default", kind: str = "greet"
) -> None:
    """Claim and finish every ready job of a topic and kind, as a worker would."""

    async def work() -> None:
        store = PostgresStore(DatabaseConfig(dsn=dsn))
        jobs = await store.claim_jobs(
            Worker().next_token(),
            [Wanted(topic, 1_000, [0] * 10)],
            kinds=[kind],
            room=1_000,
            lease_s=30,
            claimed_at=0.0,
        )
        await store.finish_jobs([Finish(job, state, 0.5, error=error) for job in jobs])
        await store.close()

    anyio.run(work)


def fire_all(dsn: str) -> int:
    """Fire what is due, as a scheduler would; how many fires."""

    async def work() -> int:
        store = PostgresStore(DatabaseConfig(dsn=dsn))
        due = await store.schedules.list_due(100)
        firings = [firing_of(one, due.read_at) for one in due.schedules]
        fired = await store.schedules.fire_schedules(firings)
        await store.promote_jobs(100)
        await store.close()
        return sum(len(one.occurrences) for one in fired.values())

    return anyio.run(work)
