"""What handlers write in transactions of their own, and one job run to where it is wanted."""

from typing import Any
from uuid import UUID

from chronos_runtime import Chronos, Client, Job, JobRecord, Runtime
from chronos_runtime.store.migrations import Connection
from tests.actors.bench import sample
from tests.eventually import eventually
from tests.test_runtime import make_config, working

DEADLINE_S = 20.0
ENDS = ("succeeded", "failed", "retried", "dead", "cancelled", "snoozed", "released", "stale")


class Ledger:
    """A table of the handler's own, read by a connection that no transaction of it shares."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    async def open(self) -> None:
        """Make the table; no key keeps it from an entry made twice."""
        await self.connection.execute("create table public.ledger (job_id uuid, attempt integer)")

    @staticmethod
    async def note(job: Job, connection: Connection) -> None:
        """An entry by a handler."""
        await connection.execute("insert into public.ledger values ($1, $2)", job.id, job.attempt)

    async def entries(self, id: UUID) -> list[int]:
        """The attempts whose entries for a job are committed."""
        rows = await self.connection.fetch(
            "select attempt from public.ledger where job_id = $1", id
        )
        return [row["attempt"] for row in rows]


async def wait_state(client: Client, id: UUID, *states: str) -> JobRecord:
    """The job, once it is in one of these states."""

    async def look() -> JobRecord | None:
        job = await client.get(id)
        return job if job.state in states else None

    return await eventually(look, DEADLINE_S)


async def run_one(app: Chronos, dsn: str, *states: str, **sections: dict[str, Any]) -> JobRecord:
    """Run one job of the app's only kind until it is in one of these states."""
    async with Client.connect(dsn, app) as client:
        record, _ = await run_counted(app, client, make_runtime(app, dsn, **sections), *states)
        return record


async def run_counted(
    app: Chronos, client: Client, runtime: Runtime, *states: str
) -> tuple[JobRecord, dict[str, float]]:
    """The same, on this runtime, and how often it counted which end."""
    (kind,) = app.handlers
    async with working(runtime):
        enqueued = await client.enqueue(kind, {})
        record = await wait_state(client, enqueued.id, *states)
    return record, counts(runtime, kind)


def make_runtime(app: Chronos, dsn: str, **sections: dict[str, Any]) -> Runtime:
    """A worker on a database, the defaults but for the sections."""
    config = make_config(dsn, **sections)
    if database := sections.get("database"):
        config = make_config(dsn, **(sections | {"database": {"dsn": dsn} | database}))
    return Runtime(app, config)


def counts(runtime: Runtime, kind: str) -> dict[str, float]:
    """The ends of jobs that a scrape would read, without those that never happened."""
    counted = {
        end: sample(
            runtime.metrics, f"chronos_reporter_{end}_jobs_total", topic="default", kind=kind
        )
        for end in ENDS
    }
    return {end: count for end, count in counted.items() if count}
