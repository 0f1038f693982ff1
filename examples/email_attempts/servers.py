"""What the example runs on: a relay, a worker that brings its own Postgres, a connection to it."""

import asyncio
import os
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import asyncpg

from chronos_runtime.embedded import EmbeddedPostgres
from chronos_runtime.errors import StoreUnavailable
from examples.email_attempts.relay import Relay

CHRONOS = (sys.executable, "-m", "chronos_runtime.cli")
CONFIG = Path(__file__).with_name("chronos.toml")
LOOK_S = 0.1


class Trouble(Exception):
    """The example did not come to its end."""


@asynccontextmanager
async def serving(relay: Relay) -> AsyncIterator[None]:
    """The relay, for as long as the block."""
    up = asyncio.Event()
    task = asyncio.create_task(relay.run(up))
    try:
        await up.wait()
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@asynccontextmanager
async def worker(folder: Path, relay: Relay) -> AsyncIterator[Process]:
    """`chronos-runtime run -`, drained at the end of the block; its log, if that was a bad one."""
    # No setting of yours: what stands in your environment may name a database of yours.
    environ = {name: value for name, value in os.environ.items() if name[:8] != "CHRONOS_"}
    environ["CHRONOS_DATABASE__DATA_DIR"] = str(folder)
    environ["CHRONOS_EMAIL__PORT"] = str(relay.port)
    log = folder.with_name("worker.log")
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *(*CHRONOS, "run", "-", "--config", str(CONFIG)),
            env=environ,
            stdin=DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,  # Ctrl-C is ours; the worker is asked below.
        )
    try:
        yield process
    except (Trouble, TimeoutError, asyncpg.PostgresError):
        sys.stderr.write(log.read_text(encoding="utf-8", errors="replace"))
        raise
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


@asynccontextmanager
async def connected(folder: Path, process: Process) -> AsyncIterator[asyncpg.Connection]:
    """A connection to the worker's database, once the worker is ready."""
    server = EmbeddedPostgres(folder)
    connection = None
    try:
        while connection is None:
            await still_running(process)
            with suppress(StoreUnavailable, OSError, asyncpg.CannotConnectNowError):
                connection = await asyncpg.connect(server.dsn)
        while not await _is_announced(connection):
            await still_running(process)
        yield connection
    finally:
        if connection is not None:
            await connection.close()


async def still_running(process: Process) -> None:
    """A moment's pause, if the worker is there to use it."""
    if process.returncode is not None:
        raise Trouble("the worker has ended")
    await asyncio.sleep(LOOK_S)


async def _is_announced(connection: asyncpg.Connection) -> bool:
    """Whether a worker has said that it is there, which it does on a schema that is current."""
    try:
        return bool(await connection.fetchval("select exists (select from chronos.workers)"))
    except (asyncpg.UndefinedTableError, asyncpg.InvalidSchemaNameError):
        return False
