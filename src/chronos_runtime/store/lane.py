"""Connections with manners: a lane of one or more, each statement with a deadline of its own.

A statement is never cancelled half-way: asyncpg would leave the connection, and perhaps row
locks, in an unknown state. So it is an errand, which goes on when its caller is cancelled. By a
scope of anyio's: then he waits, shielded, for its end. By asyncio's own cancellation (its timeouts,
its task groups), which knows no shields: then he goes. When its deadline passes the connection is
terminated, not returned. Actors that must not be starved have a lane to themselves.
"""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import anyio
import anyio.lowlevel
import asyncpg

from chronos_runtime.errors import StoreUnavailable
from chronos_runtime.store.deadlines import Deadlines
from chronos_runtime.store.errand import Errand
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
        self._away: set[asyncio.Task[Any]] = set()
        self._closings = 0
        self._deadlines = Deadlines()
        self._places = anyio.Semaphore(size, fast_acquire=True)
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
            statement,
            lambda connection: connection.fetch(query(statement), *arguments),
            is_single=True,
        )

    async def run(
        self,
        statement: str,
        operation: Callable[[asyncpg.Connection], Awaitable[T]],
        deadline_s: float | None = None,
        *,
        is_single: bool = False,
    ) -> T:
        """Run `operation` on a connection of this lane, as one uncancellable step.

        `is_single`: it sends one statement and does nothing else, so a task can be saved.
        """
        started = time.monotonic()
        answered = False
        try:
            # Whoever is cancelled goes here, and only here: all else is shielded, and without this
            # a loop of statements could never be stopped.
            if self._places.value:
                await self._places.acquire()
            else:
                await self._wait_for_place(statement)
            connection = self._take_idle()
            errand: Errand[T] = Errand(self._away)
            step = self._step(
                errand, connection, statement, operation, deadline_s or self._deadline_s
            )
            try:
                if connection is not None and is_single:
                    result = await errand.run(step)
                else:
                    errand.leave(step)  # To connect is no single thing either.
                    result = await errand.wait()
            except asyncio.CancelledError:
                result = await self._outlive(errand)
            answered = True
            return result
        finally:
            self._observe(statement, time.monotonic() - started, answered)

    async def _wait_for_place(self, statement: str) -> None:
        try:
            with anyio.fail_after(self._deadline_s):
                await self._places.acquire()
        except TimeoutError as error:
            raise StoreUnavailable(f"{statement}: no connection came free in time") from error

    async def _outlive(self, errand: Errand[T]) -> T:
        """What the errand ends with, if a scope of ours was cancelled; else the cancellation."""
        if not errand.has_left or anyio.current_effective_deadline() > -math.inf:
            raise  # noqa: PLE0704  Asyncio's own, that the caller is handling.
        # A shield from the beginning would cost every statement 10 µs.
        with anyio.CancelScope(shield=True):
            result = await errand.wait()
        return result  # noqa: RET504  For all mypy knows, the scope may swallow it.

    async def _step(
        self,
        errand: Errand[T],
        connection: asyncpg.Connection | None,
        statement: str,
        operation: Callable[[asyncpg.Connection], Awaitable[T]],
        deadline_s: float,
    ) -> T:
        closings = self._closings
        deadline = None
        is_sound = False
        try:
            if connection is None:
                connection = await self._connect()
                self._deadlines.belong_to_this_loop()
            deadline = self._deadlines.start(connection, deadline_s, errand.cut)
            result = await operation(connection)
            is_sound = True
            return result
        except (*FAULTS, asyncio.CancelledError) as failure:
            if deadline is not None and deadline.is_over:
                raise StoreUnavailable(f"{statement}: no answer within {deadline_s:g} s") from None
            if isinstance(failure, asyncio.CancelledError):
                raise
            is_sound = not breaks_connection(failure)
            raise translate(failure, statement) from failure
        finally:
            if connection is not None and deadline is not None:
                self._deadlines.lift(deadline)
                if is_sound and not deadline.is_over and closings == self._closings:
                    self._idle.append(connection)
                else:
                    connection.terminate()
            self._places.release()

    def _take_idle(self) -> asyncpg.Connection | None:
        """An open connection, if there is one; those that were cut while they waited go."""
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed():
                return connection
        return None

    async def close(self) -> None:
        """Close what is idle, politely but not for long; what is in use closes when it is done."""
        self._closings += 1
        while self._idle:
            connection = self._idle.pop()
            try:
                await connection.close(timeout=_CLOSE_S)
            except FAULTS:
                connection.terminate()
