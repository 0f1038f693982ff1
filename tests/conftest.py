"""Fixtures every test may ask for; see `tests/postgres.py` for the server behind them."""

import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from chronos_runtime.store.migrations import Connection
from tests.postgres import Databases, make_folder, make_server

_server_folder = pytest.StashKey[Path]()


def pytest_configure(config: pytest.Config) -> None:
    """Choose the folder of the server: the controller decides, its workers are told."""
    workerinput = getattr(config, "workerinput", None)
    if workerinput is not None:
        config.stash[_server_folder] = Path(workerinput["server_folder"])
        return
    config.stash[_server_folder] = make_folder()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker of pytest-xdist where the server lives."""
    node.workerinput["server_folder"] = str(node.config.stash[_server_folder])


def pytest_unconfigure(config: pytest.Config) -> None:
    """Delete the server's folder, after stopping what a crashed worker left running."""
    folder = config.stash.get(_server_folder, None)
    if folder is None or hasattr(config, "workerinput"):
        return
    if (folder / "cluster" / "postmaster.pid").exists():
        with make_server(folder):
            pass
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def anyio_backend() -> tuple[str, dict[str, bool]]:
    """Run coroutine tests as production does."""
    return ("asyncio", {"use_uvloop": True})


@pytest.fixture(scope="session")
def databases(request: pytest.FixtureRequest) -> Iterator[Databases]:
    """The server, and the making of databases on it."""
    workerinput = getattr(request.config, "workerinput", {"workerid": "main"})
    with make_server(request.config.stash[_server_folder]) as server:
        made = Databases(server, workerinput["workerid"])
        with made.open():
            yield made


@pytest.fixture
def dsn(databases: Databases) -> Iterator[str]:
    """A fresh, migrated database."""
    with databases.fresh() as dsn:
        yield dsn


@pytest.fixture
def empty_dsn(databases: Databases) -> Iterator[str]:
    """A fresh database that Chronos was never installed in."""
    with databases.fresh(template="template0") as dsn:
        yield dsn


@pytest.fixture
async def connection(dsn: str, anyio_backend: object) -> AsyncIterator[Connection]:
    """A connection to the database of `dsn`."""
    connection = await asyncpg.connect(dsn)
    try:
        yield connection
    finally:
        await connection.close()
