"""Who wants to be notified, and who listens, as `MemoryStore` keeps it."""

from collections.abc import Collection, Iterable, Sequence
from uuid import UUID

import anyio

from chronos_runtime.store import Heard
from chronos_runtime.store.memory_row import Row

_DUE_SOON_S = 15.0  # As in enqueue_jobs.sql: nobody looks by himself before.


class Bell:
    """The idle marks and the listeners of one store.

    >>> bell, heard = Bell(), []
    >>> bell.listeners.append(lambda channel, topic: heard.append((channel, topic)))
    >>> bell.mark(UUID(int=1), ["mail"], now=0.0)
    >>> bell.wake("chronos_ready", ["mail", "sms", "mail"])
    >>> heard
    [('chronos_ready', 'mail')]
    """

    def __init__(self) -> None:
        self.listeners: list[Heard] = []
        self._presences: dict[int, Heard] = {}
        self._marks: dict[tuple[str, UUID], float] = {}

    def mark(self, worker: UUID, topics: Collection[str], now: float) -> None:
        """Leave, or refresh, a worker's wish to hear of these topics."""
        self._marks.update({(topic, worker): now for topic in topics})

    def unmark(self, worker: UUID) -> None:
        """Take it back."""
        self._marks = {key: at for key, at in self._marks.items() if key[1] != worker}

    def prune(self, before: float) -> None:
        """Drop the marks nobody refreshed since then."""
        self._marks = {key: at for key, at in self._marks.items() if at >= before}

    @property
    def has_marks(self) -> bool:
        """Whether anybody waits for anything."""
        return bool(self._marks)

    def is_marked(self, topic: str) -> bool:
        """Whether anybody waits for this topic."""
        return any(marked == topic for marked, _ in self._marks)

    def is_present(self, presence: int) -> bool:
        """Whether that listener still hears."""
        return presence in self._presences

    def hand_over(self, presence: int, payload: str) -> None:
        """Tell one listener, and no other, of a job that was handed over."""
        self._presences[presence]("chronos_handed", payload)

    def wake(self, channel: str, topics: Collection[str]) -> None:
        """Notify the topics somebody waits for, each once, and no others."""
        for topic in sorted({topic for topic, _ in self._marks} & set(topics)):
            self.ring(channel, topic)

    def wake_rows(self, channel: str, rows: Iterable[Row]) -> None:
        """The same for the topics of these jobs."""
        self.wake(channel, [row.topic for row in rows])

    def wake_for_new(self, rows: Sequence[Row], now: float) -> None:
        """Notify of jobs that were just enqueued."""
        self.wake_rows("chronos_ready", (row for row in rows if row.state == "ready"))
        soon = now + _DUE_SOON_S
        self.wake_rows("chronos_due", (row for row in rows if now < row.run_at < soon))

    def ring(self, channel: str, payload: str) -> None:
        """Notify everybody who listens."""
        for heard in list(self.listeners):
            heard(channel, payload)

    async def listen(self, heard: Heard, *, presence: int, probe_s: float) -> None:
        """Deliver until cancelled, with a sign of life every `probe_s`."""
        self.listeners.append(heard)
        self._presences[presence] = heard
        try:
            heard("", "")  # Listening from here on: what came before may have been missed.
            while True:
                await anyio.sleep(probe_s)
                heard("", "probe")
        finally:
            del self._presences[presence]
            self.listeners.remove(heard)
