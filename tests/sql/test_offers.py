"""An offer on Postgres: taken up whole or not at all, and nobody waits for it but its worker."""

from collections.abc import AsyncIterator
from uuid import UUID

import anyio
import asyncpg
import msgspec
import pytest

from chronos_runtime import Client
from chronos_runtime.config import DatabaseConfig
from chronos_runtime.ids import new_job_id
from chronos_runtime.store.connect import connect
from chronos_runtime.store.migrations import Connection
from chronos_runtime.store.sql import query
from tests.eventually import eventually

WORKER, TOKEN, OTHER = UUID(int=1), UUID(int=2), UUID(int=3)
PRESENCE = 7
WANTED = (PRESENCE, 30.0, ["default"], ["greet"])


async def enqueue(connection: Connection) -> UUID:
    """One plain job, by the statement that hands over."""
    id = new_job_id()
    job = (id, "default", "greet", 5, "{}", 5, None, None)
    await connection.execute(query("enqueue_plain_job"), *job)
    return id


async def offer(connection: Connection, worker: UUID = WORKER, token: UUID = TOKEN) -> None:
    await connection.execute(query("place_offer"), worker, token, *WANTED, [])


async def withdraw(connection: Connection) -> bool:
    return bool(await connection.fetch(query("withdraw_offer"), WORKER, TOKEN))


async def tokens(connection: Connection) -> dict[UUID, UUID | None]:
    """The lease of each job."""
    rows = await connection.fetch("select id, lease_token from chronos.jobs")
    return {row["id"]: row["lease_token"] for row in rows}


@pytest.fixture
async def listener(dsn: str, connection: Connection) -> AsyncIterator[Connection]:
    """Somebody is idle: he has left a mark, an offer, and holds the lock of its presence."""
    listener = await connect(DatabaseConfig(dsn=dsn))
    await listener.execute("select pg_advisory_lock($1)", PRESENCE)
    await listener.execute(query("mark_idle"), WORKER, ["default"])
    await offer(listener)
    yield listener
    await listener.close()


async def test_two_producers_at_once_share_one_offer_without_waiting(
    dsn: str, connection: Connection, listener: Connection
) -> None:
    other = await asyncpg.connect(dsn)
    async with connection.transaction():
        first = await enqueue(connection)
        with anyio.fail_after(10):
            second = await enqueue(other)
    await other.close()
    assert await tokens(connection) == {first: TOKEN, second: None}


async def test_a_job_that_is_rolled_back_takes_up_no_offer(
    connection: Connection, listener: Connection
) -> None:
    transaction = connection.transaction()
    await transaction.start()
    await enqueue(connection)
    await transaction.rollback()
    assert await connection.fetchval("select count(*) from chronos.claims") == 0
    assert await tokens(connection) == {}
    id = await enqueue(connection)
    assert await tokens(connection) == {id: TOKEN}


async def test_who_withdraws_waits_for_the_job_that_is_being_handed_over(
    connection: Connection, listener: Connection
) -> None:
    withdrawn: list[bool] = []

    async def run() -> None:
        withdrawn.append(await withdraw(listener))

    async def is_waiting() -> bool:
        question = "select exists (select from pg_locks where pid = $1 and not granted)"
        return bool(await connection.fetchval(question, listener.get_server_pid()))

    async with anyio.create_task_group() as tasks, connection.transaction():
        id = await enqueue(connection)
        tasks.start_soon(run)
        await eventually(is_waiting)
    assert withdrawn == [False]
    assert await tokens(connection) == {id: TOKEN}


async def test_what_is_being_withdrawn_is_not_taken_up(
    connection: Connection, listener: Connection
) -> None:
    async with listener.transaction():
        assert await withdraw(listener)
        with anyio.fail_after(10):
            id = await enqueue(connection)
    assert await tokens(connection) == {id: None}


async def test_nothing_is_handed_over_in_a_transaction_of_the_callers(
    dsn: str, connection: Connection, listener: Connection
) -> None:
    async with Client.connect(dsn) as client:
        async with connection.transaction():
            inside = await client.enqueue("greet", {}, connection=connection)
        outside = await client.enqueue("greet", {}, connection=connection)
    assert await tokens(connection) == {inside.id: None, outside.id: TOKEN}


async def test_a_session_that_ended_is_handed_nothing(
    dsn: str, connection: Connection, listener: Connection
) -> None:
    await listener.close()
    question = (
        "select count(*) from pg_locks where locktype = 'advisory' and database ="
        " (select oid from pg_database where datname = current_database())"
    )

    async def is_gone() -> bool:
        return bool(await connection.fetchval(question) == 0)

    await eventually(is_gone)
    id = await enqueue(connection)
    assert await tokens(connection) == {id: None}
    assert await connection.fetchval("select token from chronos.offers") == TOKEN, "left alone"


async def test_who_may_only_enqueue_hands_nothing_over(
    connection: Connection, listener: Connection
) -> None:
    async with connection.transaction():
        await connection.execute(
            "create role producer; grant usage on schema chronos to producer;"
            " grant select, insert on chronos.jobs to producer;"
            " grant select on chronos.idle_marks to producer;"
            " grant usage on sequence chronos.job_seq to producer; set local role producer"
        )
        id = await enqueue(connection)
        await connection.execute("reset role")
        assert await tokens(connection) == {id: None}
        await connection.execute("drop owned by producer; drop role producer")


async def test_an_offer_does_not_wait_for_the_disk_and_all_else_still_does(
    listener: Connection,
) -> None:
    async with listener.transaction():
        await offer(listener)
        assert await listener.fetchval("show synchronous_commit") == "off"
    assert await listener.fetchval("show synchronous_commit") == "on"


async def test_an_old_snapshot_lets_no_more_than_the_last_offers_be_looked_at(
    dsn: str, connection: Connection, listener: Connection
) -> None:
    await withdraw(listener)
    holder = await asyncpg.connect(dsn)
    await holder.execute("begin isolation level repeatable read; select 1")
    await connection.execute(
        "insert into chronos.offers (worker, token, presence, lease_s, topics, kinds)"
        " select gen_random_uuid(), gen_random_uuid(), 7, 30, '{default}', '{greet}'"
        " from generate_series(1, 20000); delete from chronos.offers"
    )
    await enqueue(connection)  # From here on the session knows all that it has to look up.
    job = (new_job_id(), "default", "greet", 5, "{}", 5, None, None)
    explain = "explain (analyze, buffers, format json) "
    plan = await connection.fetchval(explain + query("enqueue_plain_job"), *job)
    await holder.close()
    assert set((await tokens(connection)).values()) == {None}
    # All that were ever made stand on some four hundred pages.
    assert msgspec.json.decode(plan)[0]["Plan"]["Shared Hit Blocks"] < 200
