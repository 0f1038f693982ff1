"""Who wants to be notified, and who listens, as `MemoryStore` keeps it."""

from collections.abc import Collection
from uuid import UUID

import anyio

from chronos_runtime.store import Heard


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

    def wake(self, channel: str, topics: Collection[str]) -> None:
        """Notify the topics somebody waits for, each once, and no others."""
        for topic in sorted({topic for topic, _ in self._marks} & set(topics)):
            self.ring(channel, topic)

    def ring(self, channel: str, payload: str) -> None:
        """Notify everybody who listens."""
        for heard in list(self.listeners):
            heard(channel, payload)

    async def listen(self, heard: Heard, probe_s: float) -> None:
        """Deliver until cancelled, with a sign of life every `probe_s`."""
        self.listeners.append(heard)
        try:
            heard("", "")  # Listening from here on: what came before may have been missed.
            while True:
                await anyio.sleep(probe_s)
                heard("", "probe")
        finally:
            self.listeners.remove(heard)
