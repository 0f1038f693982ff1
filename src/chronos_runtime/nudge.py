"""The two channels actors talk through: a nudge, and a mailbox whose bound is the registry.

anyio's memory object streams cost 8 µs an item and want closing; a nudge says nothing but "look
again", and a mailbox hands over everything at once, so both need no more than an event. What
there is to look at stands elsewhere (in `Inflight`, in the database, in the mailbox's own list),
so a cancelled wait can lose a hint, never a job.
"""

from collections.abc import Iterable
from typing import Generic, TypeVar

import anyio

T = TypeVar("T")


class Nudge:
    """Wakes one waiting actor; nudges that come before it looks again count once."""

    def __init__(self) -> None:
        self._event = anyio.Event()
        self.is_set = False
        self.is_closed = False

    def __call__(self) -> None:
        """Nudge. Never waits, never fails, and costs next to nothing the second time."""
        if not self.is_set:
            self.is_set = True
            self._event.set()

    async def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for a nudge; False when the time is up or the channel closed.

        Whoever waited looks again, whatever came out.
        """
        if timeout_s is None:
            await self._event.wait()  # Without a scope, which costs 10 µs.
        else:
            with anyio.move_on_after(timeout_s):
                await self._event.wait()
        is_nudged = self.is_set and not self.is_closed
        if is_nudged:
            self._event = anyio.Event()
            self.is_set = False
        return is_nudged

    def close(self) -> None:
        """No more nudges will come: waiters return at once from now on."""
        self.is_closed = True
        self()


class Mailbox(Generic[T]):
    """Items for one reader, who always takes all of them: natural batching.

    Bounded by credit, not by blocking: every item stands for a job in `Inflight`, and the
    claimer never claims more jobs than there is room for.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self.items: list[T] = []
        self.nudge = Nudge()

    def __len__(self) -> int:
        return len(self.items)

    @property
    def fill(self) -> float:
        """How full it is, from 0 to 1."""
        return len(self) / self._capacity

    def put(self, item: T) -> None:
        """Add one item."""
        self.items.append(item)
        self.nudge()
        assert len(self.items) <= self._capacity, "more items than jobs: a credit was lost"

    def put_all(self, items: Iterable[T]) -> None:
        """Add many."""
        self.items.extend(items)
        if self.items:
            self.nudge()
        assert len(self.items) <= self._capacity, "more items than jobs: a credit was lost"

    async def take(self) -> list[T]:
        """All items, once there are any; an empty list when closed and drained."""
        await self.wait()
        return self.take_now()

    async def wait(self) -> None:
        """Wait until there are any, or there will be none."""
        while not len(self) and not self.nudge.is_closed:
            await self.nudge.wait()

    def take_now(self) -> list[T]:
        """All items there are, which may be none."""
        taken, self.items = self.items, []
        assert len(taken) <= self._capacity, "more items than jobs: a credit was lost"
        return taken

    def close(self) -> None:
        """No more items will be put."""
        self.nudge.close()
