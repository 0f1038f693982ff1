"""The two channels actors talk through: a nudge, and a mailbox whose bound is the registry.

Both are an anyio memory channel of size one that carries nothing but "look again". What there
is to look at stands elsewhere (in `Inflight`, in the database, in the mailbox's own list), so a
cancelled send or receive can lose a hint, never a job.
"""

from collections.abc import Iterable
from typing import Generic, TypeVar

import anyio

T = TypeVar("T")


class Nudge:
    """Wakes one waiting actor; nudges that come before it looks again count once."""

    def __init__(self) -> None:
        self._send, self._receive = anyio.create_memory_object_stream[None](1)
        self._is_pending = False  # Spares the hot path a WouldBlock, which costs 2 µs.

    def __call__(self) -> None:
        """Nudge. Never waits, never fails."""
        if self._is_pending:
            return
        self._is_pending = True
        try:
            self._send.send_nowait(None)
        except (anyio.WouldBlock, anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass  # Already nudged, or nobody will ever look again.

    async def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for a nudge; False when the time is up or the channel closed.

        Whoever waited looks again, whatever came out: a hint lost to a cancelled receive is
        then repaired by the look.
        """
        try:
            if timeout_s is None:
                await self._receive.receive()
                return True
            with anyio.move_on_after(timeout_s):
                await self._receive.receive()
                return True
        except (anyio.EndOfStream, anyio.ClosedResourceError):
            pass
        finally:
            self._is_pending = False
        return False

    def close(self) -> None:
        """No more nudges will come: waiters return at once from now on."""
        self._send.close()

    @property
    def is_closed(self) -> bool:
        """Whether nobody can nudge any more."""
        return self._send.statistics().open_send_streams == 0


class Mailbox(Generic[T]):
    """Items for one reader, who always takes all of them: natural batching.

    Bounded by credit, not by blocking: every item stands for a job in `Inflight`, and the
    claimer never claims more jobs than there is room for.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._items: list[T] = []
        self._nudge = Nudge()

    def __len__(self) -> int:
        return len(self._items)

    @property
    def fill(self) -> float:
        """How full it is, from 0 to 1."""
        return len(self._items) / self._capacity

    def put(self, item: T) -> None:
        """Add one item."""
        self._items.append(item)
        assert len(self._items) <= self._capacity, "more items than jobs: a credit was lost"
        if len(self._items) == 1:
            self._nudge()

    def put_all(self, items: Iterable[T]) -> None:
        """Add many."""
        was_empty = not self._items
        self._items.extend(items)
        assert len(self._items) <= self._capacity, "more items than jobs: a credit was lost"
        if was_empty and self._items:
            self._nudge()

    async def take(self) -> list[T]:
        """All items, once there are any; an empty list when closed and drained."""
        while not self._items and not self._nudge.is_closed:
            await self._nudge.wait()
        taken, self._items = self._items, []
        return taken

    def close(self) -> None:
        """No more items will be put."""
        self._nudge.close()
