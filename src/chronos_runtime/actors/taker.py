"""The taker offers to take a job while this process has nothing to do, and takes what it is given.

Whoever enqueues one plain job finds the offer and inserts the job with its lease: it is ours with
the very commit that makes it, and starts without a claim. The taker is woken by word of such a job,
and when the process comes to rest. It refuses to hoard: one job at a time, offered for only when
nothing runs here, and the offer is withdrawn when no slot is free any more.

An offer whose end nobody knows, because the listener that would have heard of it was lost or the
reply to it was, is withdrawn; if it had been taken up, the job goes back to the queue, attempt and
all.

If it dies right now: the same happens when it starts again. If the process dies, its listener's
session ends and with it the offer; a job that was handed over just before is reaped like any other.
"""

import logging
import time
from collections.abc import Callable, Sequence
from uuid import UUID

import anyio

from chronos_runtime.config import ClaimerConfig
from chronos_runtime.errors import StoreError
from chronos_runtime.ids import Worker
from chronos_runtime.inflight import Inflight
from chronos_runtime.job import Job, Return
from chronos_runtime.metrics import Metrics
from chronos_runtime.nudge import Mailbox, Nudge
from chronos_runtime.store import Store
from chronos_runtime.store.offers import Offer

_log = logging.getLogger(__name__)


class Taker:
    """Takes jobs that are handed over to this process."""

    name = "taker"

    def __init__(
        self,
        config: ClaimerConfig,
        store: Store,
        inflight: Inflight,
        metrics: Metrics,
        *,
        worker: Worker,
        topics: Sequence[str],
        kinds: Sequence[str],
        concurrency: int,
        lease_s: float,
        inbox: Mailbox[Job],
        is_drained: Callable[[], bool],
        presence: Callable[[], int | None],
        scheduled: Nudge,
    ) -> None:
        self._config = config
        self._store = store
        self._inflight = inflight
        self._metrics = metrics
        self._progress = metrics.actors[self.name]
        self._worker = worker
        self._topics = list(topics)
        self._kinds = list(kinds)
        self._concurrency = concurrency
        self._lease_s = lease_s
        self._inbox = inbox
        self._is_drained = is_drained
        self._presence = presence
        self._scheduled = scheduled
        self._nudge = Nudge()
        # What is out there, as far as we know: survives a restart of this actor.
        self._offer: Offer | None = None
        self._is_placed = False  # Whether the reply to it has come.
        self._handed: UUID | None = None  # The job that it was taken up with.

    def consider(self) -> None:
        """Something changed that may make an offer right, or wrong."""
        if self._is_offered_rightly() is False or self._may_offer():
            self._nudge()

    def hear(self, payload: str) -> None:
        """A job was handed over, by the token of the offer and its id."""
        try:
            token, id = map(UUID, payload.split())
        except ValueError:
            _log.warning("notification of a bad hand-over ignored")
            return
        if self._offer is not None and self._offer.token == token:
            self._handed = id
            self._nudge()

    async def run(self) -> None:
        """Offer and take for ever; what is still offered when we are stopped is withdrawn."""
        try:
            while True:
                await self.take_once()
                self._progress.progress(resting=True)
                await self._nudge.wait()
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await self._leave()
            raise

    async def take_once(self) -> int:
        """Take what was handed over, and bring the offer to what is right; the jobs taken."""
        taken = 0
        with self._progress.measure() as rows:
            if self._offer is not None and self._handed is not None:
                taken = await self._take(self._offer, self._handed)
                rows(taken)
            elif self._is_offered_rightly() is False:
                await self.withdraw()
            if self._may_offer():
                await self._place()
        return taken

    async def withdraw(self) -> None:
        """Take back what is offered; a job it was taken up with goes back to the queue."""
        if self._offer is None:
            return
        token = self._offer.token
        if not await self._store.offers.withdraw_offer(self._worker.id, token):
            await self._release(token)
        self._offer = self._handed = None

    def _is_offered_rightly(self) -> bool | None:
        """Whether what is out there may stay; None: nothing is."""
        if self._offer is None:
            return None
        is_known = self._is_placed and self._offer.presence == self._presence()
        return is_known and self._has_slot()

    def _may_offer(self) -> bool:
        is_idle = self._inflight.is_idle and self._is_drained()
        return self._offer is None and is_idle and self._presence() is not None

    def _has_slot(self) -> bool:
        return self._inflight.queued + self._inflight.running < self._concurrency

    async def _place(self) -> None:
        presence = self._presence()
        assert presence is not None
        token, over = self._worker.next_token(), list(self._inflight.claims_over)
        self._offer = Offer(
            self._worker.id, token, presence, self._lease_s, self._topics, self._kinds
        )
        self._is_placed = False
        await self._store.offers.place_offer(self._offer, over)
        self._is_placed = True
        self._inflight.forget_claims(over)

    async def _take(self, offer: Offer, id: UUID) -> int:
        asked_at = time.monotonic()
        job = None
        if self._has_slot():
            job = await self._store.offers.take_job(
                id, offer.token, lease_s=offer.lease_s, asked_at=asked_at
            )
        if job is None:  # Too late for it, or no slot is free: others may run it.
            await self._release(offer.token)
        self._offer = self._handed = None
        if job is None:
            return 0
        taken = self._inflight.claim([job])
        self._inbox.put_all(taken)
        if not taken:  # Its id stands here still, of a job that has just ended.
            await self._store.return_jobs([Return(job, "release", delay_s=self._config.poll_s)])
            self._scheduled()
            return 0
        self._metrics.claimed.add((job.topic, job.kind), 1)
        return 1

    async def _release(self, token: UUID) -> None:
        released = await self._store.release_claim(token)
        if released:
            _log.info("gave back a job that was handed over", extra={"token": str(token)})

    async def _leave(self) -> None:
        try:
            await self.withdraw()
        except StoreError as error:
            _log.info("left an offer behind: %s", error)
