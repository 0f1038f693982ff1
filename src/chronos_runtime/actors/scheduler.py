"""The scheduler makes due jobs ready.

A pass promotes, in one statement, scheduled jobs whose time has come, by the database's clock,
and learns when the next one is due: it wakes at that instant, when somebody enqueues something
sooner, and at the latest after its interval. Between two passes it pauses, so that a stream of
due jobs is promoted a handful at a time. It refuses to hold a lock across passes; any number of
processes may promote at once.

If it dies right now: another process promotes; alone, the next pass does.
"""

from collections.abc import Callable

import anyio

from chronos_runtime.config import SchedulerConfig
from chronos_runtime.metrics import Metrics
from chronos_runtime.nudge import Nudge
from chronos_runtime.store import Promotion, Store


class Scheduler:
    """Promotes due jobs."""

    name = "scheduler"

    def __init__(
        self,
        config: SchedulerConfig,
        store: Store,
        metrics: Metrics,
        *,
        nudge: Nudge,
        returned: Callable[[], None],
        hears: Callable[[], bool],
    ) -> None:
        self._config = config
        self._store = store
        self._progress = metrics.actors[self.name]
        self._nudge = nudge
        self._returned = returned
        self._hears = hears

    async def run(self) -> None:
        """Promote for ever."""
        while True:
            promotion = await self.promote_once()
            if promotion.promoted < self._config.batch_max:
                await anyio.sleep(self._config.pause_s)
                await self._nudge.wait(self._sleep_s(promotion.next_due_s))

    async def promote_once(self) -> Promotion:
        """Promote one batch of due jobs."""
        with self._progress.measure() as rows:
            promotion = await self._store.promote_jobs(self._config.batch_max)
            rows(promotion.promoted)
        if promotion.promoted:
            self._returned()
        return promotion

    def _sleep_s(self, next_due_s: float | None) -> float:
        """How long to sleep after the pause."""
        longest_s = self._config.idle_interval_s if self._hears() else self._config.interval_s
        # A millisecond late rather than early: waking before the instant finds nothing.
        until_due_s = longest_s if next_due_s is None else min(longest_s, next_due_s + 0.001)
        return max(until_due_s - self._config.pause_s, 0.0)
