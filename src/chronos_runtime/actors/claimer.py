"""The claimer leases as many jobs as there is room for, all topics in one statement.

It is woken by room (executors ran dry), by notifications, and by its poll floor; by room only
while something may be waiting for it. It refuses to hoard: it claims ahead only what will start
within `ahead_s` at the rate just seen, so slow jobs stay available to others and fast ones come in
batches of thousands.

It begins each scan at the frontier (`frontier.py`), so that the dead entries of what was claimed
before cost nothing, and looks behind it now and then.

If it dies right now: what it leased lapses and is reaped. A claim whose reply was lost is given
back by its token before the next claim.
"""

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from uuid import UUID

from chronos_runtime.config import ClaimerConfig
from chronos_runtime.errors import StoreUnavailable
from chronos_runtime.frontier import Frontier, Look
from chronos_runtime.ids import Worker
from chronos_runtime.inflight import Inflight
from chronos_runtime.job import Job, Return
from chronos_runtime.metrics import Metrics
from chronos_runtime.nudge import Mailbox, Nudge
from chronos_runtime.pace import Pace
from chronos_runtime.store import Store, Wanted
from chronos_runtime.tally import count_labels

_MARK_REFRESH_S = 60.0  # The janitor prunes marks five times as old.
_FORGET_FROM = 10  # Claims that are over and stay noted, at most, while the queue is quiet.
_LOAD_S = 2.0  # Claims that come back full for so long mean that nobody needs to notify us.

_log = logging.getLogger(__name__)


class Claimer:
    """Leases jobs for this process's executor."""

    name = "claimer"

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
        topic_concurrency: Mapping[str, int],
        lease_s: float,
        inbox: Mailbox[Job],
        nudge: Nudge,
        scheduled: Nudge,
        hears: Callable[[], bool],
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self._config = config
        self._store = store
        self._inflight = inflight
        self._metrics = metrics
        self._progress = metrics.actors[self.name]
        self._worker = worker
        self._topics = deque(topics)
        self._kinds = list(kinds)
        self._concurrency = concurrency
        self._topic_concurrency = topic_concurrency
        self._is_limited = not topic_concurrency.keys().isdisjoint(topics)
        self._lease_s = lease_s
        self._inbox = inbox
        self._nudge = nudge
        self._scheduled = scheduled
        self._hears = hears
        self._changed = changed
        self._frontier = Frontier(topics, config.rescan_s)
        self._doubtful: list[UUID] = []
        self._pace = Pace(inflight)
        self._marked_at = -float("inf")
        # Whether the last claim came back with less than it asked for, and did not leave out …
        self._is_short = False
        self._left_out_new = False  # … what is new, because it looked behind the frontier only.
        self.is_drained = False
        """Whether nothing is left, so far as we know, and we hear of what comes."""
        self._short_at = time.monotonic()

    def look_behind(self) -> None:
        """Something behind the frontier may have become ready."""
        self._frontier.is_suspect = True
        self._nudge()

    def hear_of_room(self) -> None:
        """There is room for more jobs, which is no news to who found that there are none.

        On a quiet queue every start, rest and report says so, and each would cost a claim.
        """
        self._inflight.low_water = -1  # Heard; the next look for room says again from when on.
        if self.is_drained:
            self._changed()
        else:
            self._nudge()

    @property
    def is_marked(self) -> bool:
        """Whether producers notify this process of new jobs in its topics."""
        return self._marked_at > -float("inf")

    async def run(self) -> None:
        """Claim for ever."""
        while True:
            room = self._room()
            if room == 0:
                self.is_drained = False  # Whatever woke us waits for room.
                self._progress.progress(resting=True)
                await self._nudge.wait(self._config.poll_s)
                continue
            await self.claim_once(room)
            if self._left_out_new:
                continue  # The next claim looks for that, and says whether there is load.
            if self._is_short:
                await self._rest()
            elif self._marked_at > 0 and time.monotonic() - self._short_at > _LOAD_S:
                await self._store.unmark_idle(self._worker.id)
                self._marked_at = -float("inf")

    async def claim_once(self, room: int) -> int:
        """Lease up to `room` jobs and hand them over; how many."""
        await self.release_doubtful()
        with self._progress.measure() as rows:
            started = time.monotonic()
            look = self._frontier.look(started)
            wanted = self._wanted(room, look)
            asked = min(room, sum(one.room for one in wanted))
            if look is not None and asked:
                self._frontier.begin_look(look, started)
            jobs = await self._claim(wanted, room, started) if asked else []
            taken = self._inflight.claim(jobs)
            self._inbox.put_all(taken)
            rows(len(taken))
        is_full = len(jobs) >= max(asked, 1)
        self._left_out_new = asked > 0 and look is not None and look.upto is not None
        self._is_short = not is_full and not self._left_out_new
        self.is_drained = self._is_short and self._hears() and not self._is_limited
        if asked:
            self._note_claim(look, jobs, is_full=is_full, seconds=time.monotonic() - started)
        likeness = self._inflight.likeness_of(jobs[:1])  # It is asked of the claim.
        self._frontier.advance(jobs, likeness)
        for labels, count in count_labels(taken, likeness):
            self._metrics.claimed.add(labels, count)
        if len(taken) < len(jobs):
            await self._give_back(jobs, taken)
        self._changed()
        return len(jobs)

    async def release_doubtful(self) -> None:
        """Give back claims whose reply was lost."""
        while self._doubtful:
            released = await self._store.release_claim(self._doubtful[-1])
            token = self._doubtful.pop()
            _log.info(
                "gave back a claim whose reply was lost",
                extra={"token": str(token), "jobs": released},
            )

    async def _claim(self, wanted: Sequence[Wanted], room: int, started: float) -> list[Job]:
        token, over = self._worker.next_token(), list(self._inflight.claims_over)
        if self.is_drained and len(over) < _FORGET_FROM:
            over = []  # A job waits for this claim; or it finds nothing, and need not write.
        try:
            jobs = await self._store.claim_jobs(
                token,
                wanted,
                kinds=self._kinds,
                room=room,
                lease_s=self._lease_s,
                claimed_at=started,
                over=over,
            )
        except StoreUnavailable:
            self._doubtful.append(token)  # It may have been applied all the same.
            self._frontier.is_suspect = True
            raise
        self._inflight.forget_claims(over)
        return jobs

    async def _give_back(self, jobs: Sequence[Job], taken: Sequence[Job]) -> None:
        """Return what the registry refused, attempt and all: its old attempt still runs here.

        Not at once, or the very next claim would take it again. An attempt that gave its job back
        in its own transaction has hardly anything left to do: the scheduler is told.
        """
        kept = {job.id for job in taken}
        delay_s = self._config.poll_s
        await self._store.return_jobs(
            [Return(job, "release", delay_s=delay_s) for job in jobs if job.id not in kept]
        )
        self._scheduled()

    def _room(self) -> int:
        """How many jobs to claim now; 0 while enough are queued."""
        inflight = self._inflight
        ahead = min(int(self._pace.measure() * self._config.ahead_s), 2 * self._config.batch_max)
        self._metrics.claim_ahead.set(ahead)
        inflight.low_water = ahead // 2
        free = max(self._concurrency - inflight.running, 0)
        if inflight.queued > free + inflight.low_water:
            return 0
        room = min(free + ahead - inflight.queued, inflight.room, self._config.batch_max)
        return max(room, 0) if any(map(self._has_room, self._topics)) else 0

    def _has_room(self, topic: str) -> bool:
        limit = self._topic_concurrency.get(topic)
        return limit is None or self._inflight.unfinished.get(topic, 0) < limit

    def _wanted(self, room: int, look: Look | None) -> list[Wanted]:
        """Each topic's room. Another topic goes first each time, so that all are served."""
        self._topics.rotate(1)
        wanted = []
        for topic in self._topics:
            limit = self._topic_concurrency.get(topic)
            held = self._inflight.unfinished.get(topic, 0)
            topic_room = room if limit is None else min(room, max(limit - held, 0))
            if topic_room:
                begins, ends = self._frontier.span(topic, look)
                wanted.append(Wanted(topic, topic_room, begins, ends))
        return wanted

    def _note_claim(
        self, look: Look | None, jobs: Sequence[Job], *, is_full: bool, seconds: float
    ) -> None:
        now = time.monotonic()
        if look is not None:
            self._metrics.rescans.inc()
            self._frontier.note_look(look, jobs, is_full=is_full, seconds=seconds, now=now)
        else:
            self._frontier.note_claim(len(jobs), seconds=seconds, is_short=self._is_short)
        if self._is_short:
            self._short_at = now

    async def _rest(self) -> None:
        """The topics are empty, or seem so: ask to be notified, then wait."""
        now = time.monotonic()
        if self._hears() and now - self._marked_at > _MARK_REFRESH_S:
            # Before any wait, also the one for a look behind: who is not marked is not notified.
            await self._store.mark_idle(self._worker.id, list(self._topics))
            self._marked_at = now
            return  # Look once more: what came before the mark was not notified.
        rest_s = self._config.idle_poll_s if self._hears() else self._config.poll_s
        if self._frontier.wants_look:  # Not yet looked everywhere: as soon as that is affordable.
            rest_s = min(rest_s, max(self._frontier.look_after - now, 0.001))
        await self._nudge.wait(rest_s)
