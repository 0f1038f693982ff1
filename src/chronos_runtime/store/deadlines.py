"""The deadlines of a lane's statements, all kept by one timer.

A timer for each would cost every statement 12 µs, a thirtieth of an insert. So there is one, for
the earliest: it is left standing when its statement ends in time, and then looks for the next.
"""

import asyncio
import math
import time
from collections.abc import Callable

import asyncpg

_CLOSE_S = 1.0  # How long a statement may take to notice that its connection was terminated.


class Deadline:
    """When the time of one statement is over."""

    __slots__ = ("at", "connection", "cut", "is_over")

    def __init__(self, at: float, connection: asyncpg.Connection, cut: Callable[[], None]) -> None:
        self.at = at
        self.connection = connection
        self.cut = cut
        self.is_over = False


class Deadlines:
    """Terminates connections whose statement takes too long; then cuts what does not notice."""

    def __init__(self) -> None:
        self._running: set[Deadline] = set()
        self._loop: asyncio.AbstractEventLoop | None = None  # Of the timer.
        self._looks_at = math.inf

    def belong_to_this_loop(self) -> None:
        """A connection was opened, and its statements will be on the loop that runs now.

        A client may be closed and used again on another loop: the timer died with the first.
        """
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop, self._looks_at = loop, math.inf
            self._running.clear()

    def start(
        self, connection: asyncpg.Connection, after_s: float, cut: Callable[[], None]
    ) -> Deadline:
        """A statement begins; `cut` ends it where the end of its connection does not."""
        deadline = Deadline(time.monotonic() + after_s, connection, cut)  # The clock of the loop.
        self._running.add(deadline)
        if deadline.at < self._looks_at:
            self._look_at(deadline.at)
        return deadline

    def lift(self, deadline: Deadline) -> None:
        """The statement has ended."""
        self._running.discard(deadline)

    def _look_at(self, instant: float) -> None:
        assert self._loop is not None, "a connection was opened before the first statement"
        self._looks_at = instant
        self._loop.call_at(instant, self._look, instant)

    def _look(self, instant: float) -> None:
        if instant != self._looks_at:
            return  # An earlier deadline came after this timer was set, and has one of its own.
        self._looks_at = math.inf
        now = time.monotonic()
        for deadline in [one for one in self._running if one.at <= now]:
            self._pass(deadline, now)
        if self._running:
            self._look_at(min(one.at for one in self._running))

    def _pass(self, deadline: Deadline, now: float) -> None:
        if not deadline.is_over:
            deadline.is_over = True
            deadline.connection.terminate()
            deadline.at = now + _CLOSE_S
            return
        self._running.discard(deadline)
        deadline.cut()
