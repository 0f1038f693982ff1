"""Postgres crashes, or stays away for longer than a lease: workers live on and lose nothing."""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import anyio.to_thread
import asyncpg
import pytest

from chronos_runtime.client import Client
from chronos_runtime.embedded import EmbeddedPostgres
from tests.crash.bank import Bank
from tests.crash.checker import DEADLINE_S, LOOK_S, Checker
from tests.crash.fleet import LEASE_S, Fleet, Gate
from tests.crash.producer import Stream, enqueue
from tests.crash.say import Say
from tests.eventually import eventually

pytestmark = pytest.mark.crash

WORKERS = 2
BATCH = 10
HELD = 20
JOBS_BETWEEN_FAULTS = 300


@asynccontextmanager
async def load(client: Client, fleet: Fleet) -> AsyncIterator[Stream]:
    """Workers at work and a producer that goes on meanwhile; the stream ends with the block."""
    for _ in range(WORKERS):
        await fleet.start().is_up()
    stream = Stream(client, "quick", {"for_s": 0.05}, batch=BATCH)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stream.run)
        yield stream
        stream.stop.set()


async def more_jobs_have_ended(checker: Checker) -> None:
    """Wait until the fleet is at work again."""
    target = JOBS_BETWEEN_FAULTS + await eventually(lambda: ended(checker), DEADLINE_S)

    async def reached() -> bool:
        return await ended(checker) >= target

    await eventually(reached, DEADLINE_S, poll_s=LOOK_S)


async def ended(checker: Checker) -> int:
    try:
        return await checker.ended()
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
        return 0  # It is just being restarted.


async def assert_all_is_well(checker: Checker, fleet: Fleet, stream: Stream, say: Say) -> None:
    await checker.wait_drained()
    report = await checker.report(stream.acknowledged)
    assert report.faults == {}
    assert set(report.states) == {"succeeded"}
    assert len(fleet.alive) == WORKERS, "no worker had to be restarted"
    again = sum(row["attempt"] > 1 for row in report.history.values())
    say(
        f"{len(stream.acknowledged)} enqueues acknowledged, {stream.refused} batches refused,"
        f" {len(report.history)} jobs ended, {again} of them ran again"
    )


async def test_a_crash_of_postgres_under_load_loses_nothing_acknowledged(
    server: EmbeddedPostgres,
    crash_client: Client,
    crash_checker: Checker,
    crash_fleet: Fleet,
    say: Say,
) -> None:
    async with load(crash_client, crash_fleet) as stream:
        for _ in range(3):
            await more_jobs_have_ended(crash_checker)
            await anyio.to_thread.run_sync(server.restart, "immediate")
        await more_jobs_have_ended(crash_checker)
    await assert_all_is_well(crash_checker, crash_fleet, stream, say)


async def test_postgres_away_for_longer_than_a_lease_loses_nothing_acknowledged(
    server: EmbeddedPostgres,
    crash_client: Client,
    crash_checker: Checker,
    crash_fleet: Fleet,
    *,
    gate: Gate,
    say: Say,
) -> None:
    held = await enqueue(crash_client, "hold", HELD, gate.payload)
    async with load(crash_client, crash_fleet) as stream:
        await more_jobs_have_ended(crash_checker)
        await anyio.to_thread.run_sync(server.stop, "immediate")
        await anyio.sleep(3 * LEASE_S)  # The outage itself: nothing is waited for.
        await anyio.to_thread.run_sync(server.start)
        gate.open()  # These ran all the while, and their leases are over.
        await more_jobs_have_ended(crash_checker)
        stream.acknowledged += held
    await assert_all_is_well(crash_checker, crash_fleet, stream, say)


async def test_a_crash_of_postgres_makes_no_transfer_twice_or_by_half(
    server: EmbeddedPostgres, crash_client: Client, crash_checker: Checker, crash_fleet: Fleet
) -> None:
    bank = Bank(crash_client, crash_checker.queue, random.Random())
    await bank.open()
    ids = await bank.order(2 * JOBS_BETWEEN_FAULTS, for_s=0.01)
    for _ in range(WORKERS):
        crash_fleet.start()
    await more_jobs_have_ended(crash_checker)
    await anyio.to_thread.run_sync(server.restart, "immediate")
    await eventually(lambda: ended(crash_checker), DEADLINE_S)  # It answers again.
    await crash_checker.wait_drained()

    report, books = await crash_checker.report(ids), await bank.audit()
    assert report.faults == {}
    assert report.states == {"succeeded": len(ids)}
    assert books.are_right, books
