"""The heartbeater extends the leases of everything this process holds.

One statement a beat, for jobs held for at least half an interval: short jobs end before their
first beat. It is woken by time alone. What the statement does not return may just be locked by
its own finish; a fresh look decides, and a job whose claim is truly lost has its handler
stopped. A stale beat changes nothing: it matches no row. It refuses to fail anybody's job.

In production it runs on a thread with a loop and a connection of its own (`beat_thread`), so a
handler that blocks the main loop loses nobody's lease.

If it dies right now: it is restarted; if it stays dead, leases lapse and other processes take
the jobs over, just as if this process had died.
"""

from collections.abc import Callable, Sequence
from uuid import UUID

import anyio

from chronos_runtime.config import HeartbeaterConfig
from chronos_runtime.inflight import Inflight
from chronos_runtime.job import Job
from chronos_runtime.metrics import Metrics
from chronos_runtime.store import Claimed, Store


class Heartbeater:
    """Extends leases."""

    name = "heartbeater"

    def __init__(
        self,
        config: HeartbeaterConfig,
        store: Store,
        inflight: Inflight,
        metrics: Metrics,
        *,
        worker: str,
        lost: Callable[[UUID], None],
        cancel: Callable[[UUID], None],
    ) -> None:
        self._config = config
        self._store = store
        self._inflight = inflight
        self._metrics = metrics
        self._progress = metrics.actors[self.name]
        self._worker = worker
        self._lost = lost
        self._cancel = cancel
        self._lost_jobs: set[Job] = set()  # Counted, but still here: a handler may take its time.

    async def run(self) -> None:
        """Beat for ever, at even intervals however long a beat takes."""
        while True:
            due = anyio.current_time() + self._config.interval_s
            await self.beat_once()
            await anyio.sleep_until(due)

    async def beat_once(self) -> int:
        """Extend the leases that need it; how many were extended."""
        with self._progress.measure() as rows:
            jobs = self._inflight.held_longer_than(self._config.interval_s / 2)
            if not jobs:
                return 0
            claims = [Claimed(job.id, job.lease_token, job.attempt) for job in jobs]
            extended = await self._store.extend_leases(claims, self._config.lease_s)
            rows(len(extended))
            for id, cancel_requested in extended.items():
                if cancel_requested:
                    self._cancel(id)
            await self._look_again([job for job in jobs if job.id not in extended])
            return len(extended)

    async def _look_again(self, missing: Sequence[Job]) -> None:
        """Which of the jobs a beat did not extend are lost, not just being finished."""
        self._lost_jobs = {job for job in self._lost_jobs if self._inflight.holds(job)}
        held = [job for job in missing if self._inflight.holds(job)]
        if not held:
            return
        claims = [Claimed(job.id, job.lease_token, job.attempt) for job in held]
        checks = await self._store.verify_leases(claims, self._worker)
        for job in held:
            # A job that was given back and claimed again meanwhile is stale, and rightly gone.
            if checks[job.id].verdict == "stale" and self._inflight.holds(job):
                if job not in self._lost_jobs:
                    self._lost_jobs.add(job)
                    self._metrics.lost.add((job.topic, job.kind))
                self._lost(job.id)  # Every time: it may have been in the inbox until now.
