"""Which database a command talks to, and whether its schema is the one this program needs."""

import functools
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.to_thread
import msgspec
import typer

from chronos_runtime.app import Chronos
from chronos_runtime.cli.output import say
from chronos_runtime.cli.settings import DSN, load_settings, mask_dsn
from chronos_runtime.client import Client
from chronos_runtime.config import Config, DatabaseConfig
from chronos_runtime.embedded import EmbeddedPostgres
from chronos_runtime.errors import ConfigError, StoreError, StoreUnavailable
from chronos_runtime.store.connect import connect
from chronos_runtime.store.lane import Lane, ignore_observation
from chronos_runtime.store.migrations import Connection, check_version, migrate
from chronos_runtime.store.postgres import PostgresStore
from chronos_runtime.store.sql import Migration

_MIGRATE_S = 24 * 3600.0  # An index on a big table takes what it takes; the lock timeout guards.

T = TypeVar("T")


async def ask(
    database: DatabaseConfig,
    name: str,
    operation: Callable[[Connection], Awaitable[T]],
    *,
    deadline_s: float | None = None,
) -> T:
    """Run one operation on a connection of its own; what goes wrong names the database."""
    lane = Lane(
        functools.partial(connect, database),
        size=1,
        deadline_s=deadline_s or database.statement_s,
        observe=ignore_observation,
    )
    try:
        return await lane.run(name, operation)
    except StoreError as error:
        _, is_connecting, reason = str(error).partition(f"{name}: ")
        if not is_connecting:
            raise
        raise type(error)(f"{mask_dsn(database.dsn)}: {reason}") from error.__cause__
    finally:
        await lane.close()


async def check_schema(database: DatabaseConfig) -> None:
    """Return when the schema is current."""
    await ask(database, "check_version", check_version)


async def migrate_schema(
    database: DatabaseConfig, *, is_dry: bool = False, lock_timeout_s: float | None = None
) -> list[Migration]:
    """Apply what is missing, or only say what that is."""
    options = {} if lock_timeout_s is None else {"lock_timeout_s": lock_timeout_s}
    return await ask(
        database,
        "migrate",
        lambda connection: migrate(connection, dry_run=is_dry, **options),
        deadline_s=_MIGRATE_S,
    )


def embedded_folder(config: Config) -> Path:
    """Where the embedded Postgres keeps its data."""
    return Path(config.database.data_dir).expanduser().resolve()


@asynccontextmanager
async def embedded_database(config: Config, stop: anyio.Event) -> AsyncIterator[Config]:
    """The config with the DSN of an embedded Postgres, which runs for as long as the block."""
    async with running(EmbeddedPostgres(embedded_folder(config)), stop) as server:
        yield with_dsn(config, server.dsn)


@asynccontextmanager
async def running(server: EmbeddedPostgres, stop: anyio.Event) -> AsyncIterator[EmbeddedPostgres]:
    """The server, started and stopped on a thread: both take a second."""
    try:
        await anyio.to_thread.run_sync(server.start)
    except StoreUnavailable:
        if stop.is_set():  # Ctrl-C reached the programs that start it, too: that is no error.
            raise typer.Exit from None
        raise
    try:
        yield server
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(server.stop)


def with_dsn(config: Config, dsn: str) -> Config:
    """The same config, another database."""
    database = msgspec.structs.replace(config.database, dsn=dsn)
    return msgspec.structs.replace(config, database=database)


@asynccontextmanager
async def existing_database(dsn: str | None, file: Path | None) -> AsyncIterator[Config]:
    """The config of a command that makes no database: a given one, or the embedded one here."""
    config = load_settings({DSN: dsn}, file, os.environ).config
    if config.database.dsn:
        yield config
        return
    folder = embedded_folder(config)
    if not (folder / "cluster").is_dir():
        raise ConfigError(
            f"no database: give --dsn or set CHRONOS_DSN (and no embedded Postgres is in {folder})"
        )
    say(f"using the embedded Postgres in {folder}")
    async with embedded_database(config, anyio.Event()) as embedded:
        yield embedded


@asynccontextmanager
async def open_store(dsn: str | None, file: Path | None) -> AsyncIterator[PostgresStore]:
    """The store of an existing database whose schema is current."""
    async with existing_database(dsn, file) as config:
        await check_schema(config.database)
        store = PostgresStore(config.database)
        try:
            yield store
        finally:
            await store.close()


@asynccontextmanager
async def open_client(
    dsn: str | None, file: Path | None, app: Chronos | None = None
) -> AsyncIterator[Client]:
    """A client of the same."""
    async with open_store(dsn, file) as store:
        yield Client(store, app)
