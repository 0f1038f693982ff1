"""The fenced transaction: what a handler writes and the end of its job, together or not at all."""

from uuid import UUID

import pytest

from chronos_runtime import (
    Chronos,
    ClaimLost,
    Client,
    Job,
    JobRecord,
    Runtime,
)
from chronos_runtime.store.migrations import Connection
from tests.eventually import eventually
from tests.test_runtime import make_config, working

DEADLINE_S = 20.0


@pytest.fixture
async def ledger(connection: Connection) -> Connection:
    """A table of the handler's own."""
    await connection.execute("create table public.ledger (job_id uuid, attempt integer)")
    return connection


async def note(job: Job, connection: Connection) -> None:
    await connection.execute("insert into public.ledger values ($1, $2)", job.id, job.attempt)


async def entries(ledger: Connection, id: UUID) -> list[int]:
    rows = await ledger.fetch("select attempt from public.ledger where job_id = $1", id)
    return [row["attempt"] for row in rows]


async def run_one(app: Chronos, dsn: str, *states: str) -> JobRecord:
    """Run one job of the app's only kind until it is in one of these states."""
    async with Client.connect(dsn, app) as client, working(Runtime(app, make_config(dsn))):
        enqueued = await client.enqueue(next(iter(app.handlers)), {})

        async def ended() -> JobRecord | None:
            job = await client.get(enqueued.id)
            return job if job.state in states else None

        return await eventually(ended, DEADLINE_S)


async def test_writes_and_the_end_are_committed_together(dsn: str, ledger: Connection) -> None:
    app = Chronos()

    @app.handler("pay")
    async def pay(job: Job, payload: object) -> None:
        transaction = job.transaction()
        async with transaction as connection:
            await note(job, connection)
            assert await entries(ledger, job.id) == []
            transaction.end_with({"paid": 1})
        assert await entries(ledger, job.id) == [1]

    job = await run_one(app, dsn, "succeeded")
    assert job.result == {"paid": 1}
    assert await entries(ledger, job.id) == [1]


async def test_a_failure_takes_the_writes_back(dsn: str, ledger: Connection) -> None:
    app = Chronos()

    @app.handler("pay", max_attempts=1)
    async def pay(job: Job, payload: object) -> None:
        async with job.transaction() as connection:
            await note(job, connection)
            raise ValueError("no")

    job = await run_one(app, dsn, "dead")
    assert await entries(ledger, job.id) == []
    assert job.errors[-1]["message"] == "no"


async def test_a_lost_claim_takes_the_writes_back(dsn: str, ledger: Connection) -> None:
    app = Chronos()
    troubles: list[BaseException] = []

    @app.handler("pay")
    async def pay(job: Job, payload: object) -> None:
        try:
            async with job.transaction() as connection:
                await note(job, connection)
                if job.attempt == 1:  # As if the lease had lapsed and another had taken it over.
                    await ledger.execute(
                        "update chronos.jobs set state = 'ready', lease_token = null,"
                        " lease_until = null where id = $1",
                        job.id,
                    )
        except ClaimLost as error:
            troubles.append(error)
            raise

    job = await run_one(app, dsn, "succeeded")
    assert await entries(ledger, job.id) == [2]
    assert len(troubles) == 1
