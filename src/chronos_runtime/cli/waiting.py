"""Waiting for a database that is not there yet: still starting, restarting, or full."""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import TypeVar

import anyio
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Column

from chronos_runtime.cli.output import clean, error_console
from chronos_runtime.errors import StoreUnavailable

_FIRST_S = 0.1
_MOST_S = 5.0
_JITTER = 0.5  # Shortens a pause by up to half, so that a fleet does not come back in step.

T = TypeVar("T")

_log = logging.getLogger(__name__)


async def until_available(operation: Callable[[], Awaitable[T]]) -> T:
    """What `operation` returns once the database is there to answer it."""
    try:
        return await operation()
    except StoreUnavailable as error:
        return await _keep_trying(operation, error)


async def _keep_trying(operation: Callable[[], Awaitable[T]], error: StoreUnavailable) -> T:
    started = time.monotonic()
    pause_s = _FIRST_S
    _log.warning("the database is not there yet; waiting for it", extra={"error": str(error)})
    out = error_console()
    with Progress(
        SpinnerColumn(),
        TextColumn("waiting for the database", table_column=Column(min_width=24)),
        TimeElapsedColumn(),
        TextColumn("{task.description}", style="dim", table_column=Column(no_wrap=True)),
        console=out,
        transient=True,
        disable=not out.is_terminal,
    ) as progress:
        task = progress.add_task("", total=None)
        while True:
            reason = clean(str(error.__cause__ or error)) or type(error.__cause__).__name__
            progress.update(task, description=reason)
            if progress.disable:
                _log.info("waiting for the database", extra={"error": reason})
            await anyio.sleep(pause_s * random.uniform(1 - _JITTER, 1.0))
            pause_s = min(2 * pause_s, _MOST_S)
            try:
                result = await operation()
            except StoreUnavailable as again:
                error = again
            else:
                _log.info("the database is there after %.1f s", time.monotonic() - started)
                return result


async def unless(stop: anyio.Event, work: Coroutine[object, object, T]) -> T | None:
    """What `work` returns; None when `stop` came first.

    By asyncio's own cancellation: a statement is shielded against anyio's, and here nothing is
    under way that could be lost, so nobody should wait for a connection to time out.
    """
    task = asyncio.ensure_future(work)
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({task, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        return None
    finally:
        stopping.cancel()
