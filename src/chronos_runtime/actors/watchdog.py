"""The watchdog takes back what the dead were holding.

Every pass reaps, in one statement, running jobs whose lease has run out: ready again at once,
dead after the last attempt, cancelled where that was asked for, with the error 'worker lease
expired'. It is woken by time alone. It refuses to judge liveness by anything but the lease. Any
number of processes may sweep at once: a row is reaped by whoever locks it first.

If it dies right now: recovery waits for the next pass, here or in any other process.
"""

import logging
from collections.abc import Callable
from uuid import UUID

import anyio

from chronos_runtime.config import WatchdogConfig
from chronos_runtime.errors import StoreError, StoreUnavailable
from chronos_runtime.metrics import Metrics
from chronos_runtime.store import Reaped, Store

_FIRST = UUID(int=0)

_log = logging.getLogger(__name__)


class Watchdog:
    """Reaps expired leases."""

    name = "watchdog"

    def __init__(
        self,
        config: WatchdogConfig,
        store: Store,
        metrics: Metrics,
        *,
        returned: Callable[[], None],
    ) -> None:
        self._config = config
        self._store = store
        self._metrics = metrics
        self._progress = metrics.actors[self.name]
        self._returned = returned

    async def run(self) -> None:
        """Reap for ever."""
        while True:
            while await self.reap_once() == self._config.batch_max:
                pass  # A full batch: more may be waiting behind it.
            await anyio.sleep(self._progress.rest_s(self._config.interval_s))

    async def reap_once(self) -> int:
        """Reap one batch of expired leases; the number reaped."""
        with self._progress.measure() as rows:
            try:
                reaped = await self._store.reap_jobs(limit=self._config.batch_max, after=_FIRST)
            except StoreUnavailable:
                raise
            except StoreError as error:
                _log.error("a row cannot be reaped, going one by one: %s", error)
                reaped = await self._reap_one_by_one()
            rows(len(reaped))
        for job in reaped:
            self._metrics.reaped.add((job.topic, job.kind))
            _log.warning(
                "reaped: worker lease expired",
                extra={
                    "job": str(job.id),
                    "kind": job.kind,
                    "attempt": job.attempt,
                    "token": str(job.lease_token),
                    "state": job.state,
                },
            )
        if reaped:
            self._returned()
        return len(reaped)

    async def _reap_one_by_one(self) -> list[Reaped]:
        """Step over the rows that fail: one bad row never stops the sweep."""
        reaped: list[Reaped] = []
        after = _FIRST
        while ids := await self._store.list_expired(limit=self._config.batch_max, after=after):
            for id in ids:
                try:
                    reaped += await self._store.reap_jobs(limit=1, after=UUID(int=id.int - 1))
                except StoreUnavailable:
                    raise
                except StoreError as error:
                    self._metrics.reap_skips.inc()
                    _log.error("row skipped: %s", error, extra={"job": str(id)})
            after = ids[-1]
        return reaped
