"""Connections with manners: a lane of one or more, each statement with a deadline of its own.

A statement is never cancelled half-way: asyncpg would leave the connection, and perhaps row
locks, in an unknown state. It runs shielded, and in a task of its own, because asyncio's own
cancellation (its timeouts, its task groups) knows no shields: then the caller goes and the
statement still runs to its end. When its deadline passes the connection is terminated, not
returned. Actors that must not be starved have a lane to themselves.
"""

import asyncio
import functools
import math
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import anyio
import anyio.lowlevel
import asyncpg

from chronos_runtime.errors import StoreUnavailable
from chronos_runtime.store.deadlines import Deadlines
from chronos_runtime.store.faults import FAULTS, breaks_connection, translate
from chronos_runtime.store.sql import query

T = TypeVar("T")
Connect = Callable[[], Awaitable[asyncpg.Connection]]
Observe = Callable[[str, float, bool], None]
"""Called after each statement with its name, its seconds, and whether the database answered."""

_CLOSE_S = 1.0  # How long a polite goodbye may take before the connection is terminated.


def ignore_observation(statement: str, seconds: float, answered: bool) -> None:
    """For stores nobody watches."""


class Lane:
    """Up to `size` connections, opened when needed, given up when broken."""

    def __init__(self, connect: Connect, *, size: int, deadline_s: float, observe: Observe) -> None:
        self._connect = connect
        self._deadline_s = deadline_s
        self._observe = observe
        self._idle: list[asyncpg.Connection] = []
        self._steps: set[asyncio.Future[Any]] = set()  # The loop itself holds tasks but weakly.
        self._closings = 0
        self._deadlines = Deadlines()
        self._places = anyio.Semaphore(size)
        self.size = size

    @property
    def used(self) -> int:
        """How many statements run on this lane right now."""
        return self.size - self._places.value

    @property
    def idle(self) -> int:
        """How many open connections wait for work."""
        return len(self._idle)

    async def fetch(self, statement: str, *arguments: object) -> list[asyncpg.Record]:
        """Run the statement of that name; its rows."""
        return await self.run(
            statement, lambda connection: connection.fetch(query(statement), *arguments)
        )

    async def run(
        self,
        statement: str,
        operation: Callable[[asyncpg.Connection], Awaitable[T]],
        deadline_s: float | None = None,
    ) -> T:
        """Run `operation` on a connection of this lane, as one uncancellable step."""
        started = time.monotonic()
        answered = False
        try:
            await self._find_place(statement)
            ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            step = asyncio.ensure_future(
                self._step(statement, operation, deadline_s or self._deadline_s, ended)
            )
            self._steps.add(step)
            step.add_done_callback(functools.partial(self._forget_step, ended))
            await self._wait(step, ended)
            result = step.result()
            answered = True
            return result
        finally:
            self._observe(statement, time.monotonic() - started, answered)

    async def _find_place(self, statement: str) -> None:
        # All else is shielded: without this, a loop of statements could never be stopped.
        await anyio.lowlevel.checkpoint_if_cancelled()
        try:
            self._places.acquire_nowait()
        except anyio.WouldBlock:
            try:
                with anyio.fail_after(self._deadline_s):
                    await self._places.acquire()
            except TimeoutError as error:
                raise StoreUnavailable(f"{statement}: no connection came free in time") from error

    async def _wait(self, step: asyncio.Future[Any], ended: asyncio.Future[None]) -> None:
        try:
            await ended  # Not the step: asyncio would hand a cancellation on to it.
        except asyncio.CancelledError:
            if anyio.current_effective_deadline() > -math.inf:
                raise  # No scope of ours was cancelled, so this is asyncio's own.
            # A shield from the beginning would cost every statement 10 µs.
            with anyio.CancelScope(shield=True):
                await asyncio.wait([step])

    async def _step(
        self,
        statement: str,
        operation: Callable[[asyncpg.Connection], Awaitable[T]],
        deadline_s: float,
        ended: asyncio.Future[None],
    ) -> T:
        try:
            return await self._operate(statement, operation, deadline_s)
        finally:
            # Here, and not when the loop tells that the task is done: a turn of the loop sooner.
            # Whoever waits goes on after this task has ended.
            self._places.release()
            _set(ended)

    def _forget_step(self, ended: asyncio.Future[None], step: asyncio.Future[Any]) -> None:
        self._steps.discard(step)
        _set(ended)  # Of a step that was cancelled before it began, with its loop.
        if not step.cancelled():
            step.exception()  # Its caller may be gone, and asyncio complains if nobody looks.

    async def _operate(
        self,
        statement: str,
        operation: Callable[[asyncpg.Connection], Awaitable[T]],
        deadline_s: float,
    ) -> T:
        closings = self._closings
        connection = await self._take(statement)
        deadline = self._deadlines.start(connection, deadline_s)
        is_sound = False
        try:
            result = await operation(connection)
            is_sound = True
            return result
        except (*FAULTS, asyncio.CancelledError) as failure:
            if deadline.is_over:
                raise StoreUnavailable(f"{statement}: no answer within {deadline_s:g} s") from None
            if isinstance(failure, asyncio.CancelledError):
                raise
            is_sound = not breaks_connection(failure)
            raise translate(failure, statement) from failure
        finally:
            self._deadlines.lift(deadline)
            if is_sound and not deadline.is_over and closings == self._closings:
                self._idle.append(connection)
            else:
                connection.terminate()

    async def _take(self, statement: str) -> asyncpg.Connection:
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed():  # Cut while it waited: no reason to fail anybody.
                return connection
        try:
            return await self._connect()
        except FAULTS as error:
            raise translate(error, statement) from error

    async def close(self) -> None:
        """Close what is idle, politely but not for long; what is in use closes when it is done."""
        self._closings += 1
        while self._idle:
            connection = self._idle.pop()
            try:
                await connection.close(timeout=_CLOSE_S)
            except FAULTS:
                connection.terminate()


def _set(ended: asyncio.Future[None]) -> None:
    if not ended.done():
        ended.set_result(None)
