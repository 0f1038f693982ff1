"""The janitor makes history partitions ahead, drops what is old, and keeps presence fresh.

It is woken by time alone, every minute for presence, every ten for the history, which goes by
the day. It forgets claims that their workers left behind, and patrols the live jobs, some
thousands at a time, for leases that belong to no claim: nobody would take those back. It refuses
to touch live jobs. Its statements take their locks with the statement deadline, so a long reader
of the history delays it and nothing else.

If it dies right now: its next round, or another process, does its work; until then the default
partition takes what no day's partition does.
"""

import logging
import time
from uuid import UUID

import anyio

from chronos_runtime.config import JanitorConfig
from chronos_runtime.metrics import Metrics
from chronos_runtime.store import Store, WorkerInfo

_DAY_S = 86_400.0
_PRUNE_MAX = 10_000  # Ended schedules and alarms forgotten in one round.
_REVIEW_MAX = 1_000  # Claims; one of 4,000 jobs takes 2 to 5 ms.
_PATROL_JOBS = 50_000  # Measured: 30 to 55 ms.
_FIRST = UUID(int=0)
_PRESENCE_S = 300.0  # Presence and marks are refreshed every minute.

_log = logging.getLogger(__name__)


class Janitor:
    """Keeps the house."""

    name = "janitor"

    def __init__(
        self, config: JanitorConfig, store: Store, metrics: Metrics, *, worker: WorkerInfo
    ) -> None:
        self._config = config
        self._store = store
        self._metrics = metrics
        self._progress = metrics.actors[self.name]
        self._worker = worker
        self._patrolled = _FIRST
        self._history_at = -float("inf")  # Monotonic time of the next look at the history.

    async def run(self) -> None:
        """Tidy for ever."""
        while True:
            await self.tidy_once()
            await anyio.sleep(self._config.interval_s)

    async def tidy_once(self) -> None:
        """One round: presence, and the history when its time has come."""
        with self._progress.measure() as rows:
            await self._store.announce_worker(self._worker)
            await self._store.prune_workers(_PRESENCE_S)
            await self._store.review_claims(_REVIEW_MAX)
            if time.monotonic() >= self._history_at:
                rows(await self._tidy_history())
                await self._patrol()
                # Only now: what failed is tried again in the next round.
                self._history_at = time.monotonic() + self._config.history_interval_s

    async def _patrol(self) -> None:
        """A stretch of the way over the live jobs, from where the last one ended."""
        last, noted = await self._store.note_claims(limit=_PATROL_JOBS, after=self._patrolled)
        self._patrolled = last or _FIRST
        if noted:
            _log.warning("leases found that belong to no claim", extra={"jobs": noted})

    async def _tidy_history(self) -> int:
        """Partitions ahead, retention; how many partitions were made and dropped."""
        made = await self._store.make_partitions(self._config.days_ahead)
        self._metrics.partitions.labels("made").inc(made)
        dropped = await self._store.prune_history(self._config.retention_days * _DAY_S)
        self._metrics.partitions.labels("dropped").inc(len(dropped))
        for name in dropped:
            _log.info("history dropped by retention", extra={"partition": name})
        pruned = await self._store.schedules.prune_schedules(
            self._config.retention_days * _DAY_S, _PRUNE_MAX
        )
        if pruned:
            _log.info("ended schedules and alarms forgotten by retention", extra={"rows": pruned})
        return made + len(dropped) + pruned
