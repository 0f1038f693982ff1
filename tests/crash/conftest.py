"""Fixtures of the tests that kill real processes."""

import shutil
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import anyio.to_thread
import asyncpg
import pytest

from chronos_runtime.client import Client
from chronos_runtime.embedded import EmbeddedPostgres
from chronos_runtime.store.migrations import migrate
from tests.crash.checker import Checker, open_checker
from tests.crash.fleet import Fleet, Gate
from tests.crash.occurrences import SEEN, ScheduleChecker
from tests.crash.say import Say
from tests.postgres import make_folder, make_server, wanted_version


@pytest.fixture
async def client(dsn: str, anyio_backend: object) -> AsyncIterator[Client]:
    """A producer that holds no handlers."""
    async with Client.connect(dsn) as client:
        yield client


@pytest.fixture
async def checker(dsn: str, anyio_backend: object) -> AsyncIterator[Checker]:
    """The judge; evidence stands in the database of the queue."""
    async with open_checker(dsn, dsn) as checker:
        yield checker


@pytest.fixture
async def schedules(checker: Checker) -> ScheduleChecker:
    """The judge of schedules; what handlers of fires write down stands beside them."""
    await checker.evidence.execute(SEEN)
    return ScheduleChecker(checker.queue, checker.evidence)


@pytest.fixture
def fleet(dsn: str, checker: Checker, tmp_path: Path) -> Iterator[Fleet]:
    """Starts workers on `dsn`; none outlives its test."""
    fleet = Fleet(dsn, dsn, tmp_path)
    try:
        yield fleet
    finally:
        fleet.end()


@pytest.fixture
async def server() -> AsyncIterator[EmbeddedPostgres]:
    """A server of one's own to crash, as durable as production's, with the schema in it."""
    folder = make_folder()
    bin_path = make_server(folder).bin_path
    server = EmbeddedPostgres(folder, version=wanted_version(), bin_path=bin_path)
    await anyio.to_thread.run_sync(server.start)
    try:
        connection = await asyncpg.connect(server.dsn)
        await migrate(connection)
        await connection.close()
        yield server
    finally:
        await anyio.to_thread.run_sync(server.stop)
        shutil.rmtree(folder)


@pytest.fixture
async def crash_client(server: EmbeddedPostgres) -> AsyncIterator[Client]:
    async with Client.connect(server.dsn) as client:
        yield client


@pytest.fixture
async def crash_checker(server: EmbeddedPostgres, dsn: str) -> AsyncIterator[Checker]:
    """Evidence stands on the server that stays."""
    async with open_checker(server.dsn, dsn) as checker:
        yield checker


@pytest.fixture
def crash_fleet(
    server: EmbeddedPostgres, dsn: str, crash_checker: Checker, tmp_path: Path
) -> Iterator[Fleet]:
    fleet = Fleet(server.dsn, dsn, tmp_path)
    try:
        yield fleet
    finally:
        fleet.end()


@pytest.fixture
def say() -> Say:
    """Tells figures: shown when a test fails, and by `pytest -rP`."""
    return lambda text: sys.stdout.write(f"{text}\n")


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    """A closed gate."""
    return Gate(tmp_path)
