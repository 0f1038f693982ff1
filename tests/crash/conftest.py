"""Fixtures of the tests that kill real processes."""

import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from chronos_runtime.client import Client
from tests.crash.checker import Checker, open_checker
from tests.crash.fleet import Fleet, Gate
from tests.crash.occurrences import SEEN, ScheduleChecker
from tests.crash.say import Say


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
def say() -> Say:
    """Tells figures: shown when a test fails, and by `pytest -rP`."""
    return lambda text: sys.stdout.write(f"{text}\n")


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    """A closed gate."""
    return Gate(tmp_path)
