"""The listener turns notifications into nudges.

It is woken by its socket and probes itself: it notifies itself now and then and expects to hear
that, so a half-open connection is found out. It refuses to be trusted: every notification is a
hint, and with no listener at all everything works at the poll floor.

If it dies right now: pick-up falls back to the poll floor until it listens again, and then
everybody is nudged once, because something may have been missed.
"""

import logging
import random
from collections.abc import Callable
from uuid import UUID

from chronos_runtime.config import ListenerConfig
from chronos_runtime.metrics import Metrics
from chronos_runtime.nudge import Nudge
from chronos_runtime.store import Store

_PRESENCE_BITS = 63  # A bigint, and no negative one: it ends the name of a channel.

_log = logging.getLogger(__name__)


class Listener:
    """Hears what other processes say."""

    name = "listener"

    def __init__(
        self,
        config: ListenerConfig,
        store: Store,
        metrics: Metrics,
        *,
        ready: Nudge,
        returned: Callable[[], None],
        due: Nudge,
        handed: Callable[[str], None],
        cancel: Callable[[UUID], None],
    ) -> None:
        self._config = config
        self._store = store
        self._metrics = metrics
        self._progress = metrics.actors[self.name]
        self._ready = ready
        self._returned = returned
        self._due = due
        self._handed = handed
        self._cancel = cancel
        self._presence = 0
        self.is_up = False

    @property
    def presence(self) -> int | None:
        """The number that the connection we hear by is known under; None while there is none."""
        return self._presence if self.is_up else None

    async def run(self) -> None:
        """Listen until the connection is lost, which raises."""
        self._presence = random.getrandbits(_PRESENCE_BITS)  # Another one for each connection.
        try:
            await self._store.listen(
                self.hear,
                presence=self._presence,
                probe_s=self._config.probe_s,
                probe_deadline_s=self._config.probe_deadline_s,
            )
        finally:
            self._set_up(False)
            # Whoever rests trusting in us must look, and from now on at the poll floor.
            self._returned()
            self._due()

    def hear(self, channel: str, payload: str) -> None:
        """Handle one notification; an empty channel is the listener's own sign of life.

        Signs of life are its passes. A notification is not timed: that would be half of what it
        takes (measured: 70 µs after a rest, 40 without), and a job is waiting for it.
        """
        if channel:
            self._tell(channel, payload)
            self._progress.rows.inc()
            self._progress.progress()
        else:
            with self._progress.measure() as rows:
                self._live()
                rows(1)
        self._metrics.notifications.labels(channel or "probe").inc()

    def _tell(self, channel: str, payload: str) -> None:
        match channel:
            case "chronos_ready":
                self._ready()
            case "chronos_returned":
                self._returned()
            case "chronos_due":
                self._due()
            case "chronos_handed":
                self._handed(payload)
            case "chronos_cancel":
                self._cancel_by(payload)

    def _live(self) -> None:
        if not self.is_up:
            self._set_up(True)
            self._returned()  # Something may have been missed.
            self._due()

    def _cancel_by(self, payload: str) -> None:
        try:
            self._cancel(UUID(payload))
        except ValueError:
            _log.warning("notification with a bad job id ignored")

    def _set_up(self, is_up: bool) -> None:
        self.is_up = is_up
        self._metrics.listener_up.set(is_up)
