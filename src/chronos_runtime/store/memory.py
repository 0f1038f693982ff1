"""The store in memory: an exact model of the one on Postgres, for simulation and unit tests.

Each method does what the statement of the same name in `schema/queries` does, by the same rules
and in the same order, and `tests/store` holds both to one contract. There is nothing to wait
for and nothing to lock: a method lets other tasks run first and is then one step. It belongs to
one event loop, asyncio's or trio's; any number of clients and runtimes there may share it. The
clock is the caller's, so that simulated time may pass as fast as it likes.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from uuid import UUID

from anyio.lowlevel import checkpoint

from chronos_runtime.job import Finishes, Job, Return, State
from chronos_runtime.lineage import SUPERVISE_TOPIC
from chronos_runtime.store import (
    CancelResult,
    Checked,
    Claimed,
    Gate,
    Heard,
    HistoryCounts,
    JobRecord,
    NewJob,
    Promotion,
    Reaped,
    TopicDepth,
    Wanted,
    WorkerInfo,
)
from chronos_runtime.store.memory_bell import Bell
from chronos_runtime.store.memory_gates import Gates
from chronos_runtime.store.memory_jobs import Jobs
from chronos_runtime.store.memory_offers import MemoryOffers
from chronos_runtime.store.memory_presence import Presence
from chronos_runtime.store.memory_row import Row, by_occurrence, check_json, check_return
from chronos_runtime.store.memory_schedules import MemorySchedules


class MemoryStore:
    """Chronos's state for as long as this object lives, for tests and simulations.

    >>> import anyio, chronos_runtime
    >>> anyio.run(chronos_runtime.Client(MemoryStore()).enqueue, "greet", {"name": "Ada"}).is_new
    True
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._jobs = Jobs()
        self._gates = Gates()
        self._presence = Presence()
        self._bell = Bell()
        self.offers = MemoryOffers(self._jobs, self._gates, self._bell, self._begin)
        self.schedules = MemorySchedules(self._jobs, self._bell, self._begin)

    async def _begin(self) -> float:
        """Let others run; from here on the method is one step, at the instant returned."""
        await checkpoint()
        return self._clock()

    async def enqueue_jobs(self, jobs: Sequence[NewJob]) -> set[UUID]:
        now = await self._begin()
        rows = [Row.of(job, seq=self._jobs.next_seq(), now=now) for job in jobs]
        rows = [row for row in rows if self._jobs.insert(row)]
        is_one = len(jobs) == len(rows) == 1 and jobs[0].is_plain
        if not (is_one and self.offers.hand_over(rows[0], now)):
            self._bell.wake_for_new(rows, now)
        return {row.id for row in rows}

    async def claim_jobs(
        self,
        token: UUID,
        wanted: Sequence[Wanted],
        *,
        kinds: Sequence[str],
        room: int,
        lease_s: float,
        claimed_at: float,
        over: Sequence[UUID] = (),
    ) -> list[Job]:
        now = await self._begin()
        picked: list[Row] = []
        for one in wanted:
            if self._gates.is_open(one.topic):
                picked += self._jobs.pick(one, kinds)
        picked = sorted(picked[:room], key=attrgetter("claim_order"))
        for row in picked:
            row.lease(token, now + lease_s)
        return [row.claimed(now, claimed_at) for row in picked]

    async def release_claim(self, token: UUID) -> int:
        now = await self._begin()
        released = [row for row in self._jobs.in_state("running") if row.lease_token == token]
        for row in released:
            row.requeue(now, delay_s=None, gives_back=True)
        self._bell.wake_rows("chronos_returned", released)
        return len(released)

    async def finish_jobs(self, finishes: Finishes) -> set[UUID]:
        now = await self._begin()
        for one in finishes:  # All or nothing: a bad value fails the batch before it begins.
            check_json(one.result, one.error)
        finished: dict[UUID, Row] = {}
        for one in sorted(finishes, key=lambda one: by_occurrence(one.job)):
            if row := self._jobs.held(one.job):
                row.push_error(one.error, now)
                row.result, row.run_s = one.result, one.run_s
                self._jobs.end(row, one.state, now)
                finished[row.id] = row
        self._tell_supervisors(finished.values(), now)
        return set(finished)

    async def return_jobs(self, returns: Sequence[Return]) -> dict[UUID, str]:
        now = await self._begin()
        for one in returns:
            check_return(one, now)
        returned: dict[UUID, Row] = {}
        for one in sorted(returns, key=lambda one: by_occurrence(one.job)):
            row = self._jobs.held(one.job)
            if row is None:
                continue
            returned[row.id] = row
            row.push_error(one.error, now)
            if row.cancel_requested:
                self._jobs.end(row, "cancelled", now)
            else:
                row.requeue(now, delay_s=one.delay_s, gives_back=one.gives_back)
        self._bell.wake_rows(
            "chronos_returned", (row for row in returned.values() if row.state == "ready")
        )
        return {row.id: row.state for row in returned.values()}

    async def verify_claims(self, claims: Sequence[Claimed], worker: str) -> dict[UUID, Checked]:
        await self._begin()
        return {claim.id: self._jobs.verify(claim, worker) for claim in claims}

    async def verify_leases(self, claims: Sequence[Claimed], worker: str) -> dict[UUID, Checked]:
        return await self.verify_claims(claims, worker)

    async def extend_leases(self, claims: Sequence[Claimed], lease_s: float) -> dict[UUID, bool]:
        now = await self._begin()
        extended = {}
        for claim in claims:
            if row := self._jobs.held(claim):
                row.lease_until = now + lease_s
                extended[row.id] = row.cancel_requested
        return extended

    async def reap_jobs(
        self, *, limit: int, after: UUID, dead_worker: tuple[UUID, UUID] | None = None
    ) -> list[Reaped]:
        now = await self._begin()
        expired = self._jobs.expired(now, after, dead_worker)[:limit]
        reaped = [self._jobs.reap(row, now) for row in sorted(expired, key=by_occurrence)]
        self._tell_supervisors(expired, now)
        self._bell.wake("chronos_returned", [one.topic for one in reaped if one.state == "ready"])
        return sorted(reaped, key=attrgetter("id"))

    async def list_expired(self, *, limit: int, after: UUID) -> list[UUID]:
        now = await self._begin()
        return [row.id for row in self._jobs.expired(now, after)[:limit]]

    async def review_claims(self, limit: int) -> int:
        return 0  # Leases are found here without a note of their claims.

    async def note_claims(self, *, limit: int, after: UUID) -> tuple[UUID | None, int]:
        return None, 0

    async def promote_jobs(self, limit: int) -> Promotion:
        promoted, next_due_s = self._jobs.promote(limit, await self._begin())
        self._bell.wake_rows("chronos_returned", promoted)
        return Promotion(len(promoted), next_due_s)

    async def cancel_jobs(self, ids: Sequence[UUID]) -> dict[UUID, CancelResult]:
        now = await self._begin()
        results: dict[UUID, CancelResult] = {}
        for row in self._jobs.among(ids):
            if row.state == "running":
                row.cancel_requested = True
                self._bell.ring("chronos_cancel", str(row.id))
                results[row.id] = "requested"
            else:
                self._jobs.end(row, "cancelled", now)
                results[row.id] = "cancelled"
        return results

    async def retry_jobs(self, ids: Sequence[UUID]) -> set[UUID]:
        now = await self._begin()
        revived = self._jobs.revive(ids, now)
        self._bell.wake_rows("chronos_ready", revived)
        return {row.id for row in revived}

    async def discard_jobs(self, ids: Sequence[UUID]) -> set[UUID]:
        await self._begin()
        return self._jobs.history.discard(ids)

    async def start_attempt(
        self, task: UUID, *, id: UUID, payload: str | None, delay_s: float
    ) -> bool:
        now = await self._begin()
        row = self._jobs.start_attempt(task, id, payload=payload, delay_s=delay_s, now=now)
        self._bell.wake_for_new([] if row is None else [row], now)
        return row is not None

    async def escalate_jobs(self, ids: Sequence[UUID]) -> set[UUID]:
        await self._begin()
        return self._jobs.history.escalate(ids)

    async def list_lineage(self, id: UUID, limit: int) -> list[JobRecord]:
        await self._begin()
        return [row.record() for row in self._jobs.line(id)[:limit]]

    async def get_jobs(self, ids: Sequence[UUID]) -> dict[UUID, JobRecord]:
        await self._begin()
        rows = [self._jobs.find(job_id) for job_id in ids]
        return {row.id: row.record() for row in rows if row is not None}

    async def list_jobs(
        self,
        *,
        states: Sequence[State] | None,
        topic: str | None,
        kind: str | None,
        before: UUID | None,
        limit: int,
    ) -> list[JobRecord]:
        await self._begin()
        rows = self._jobs.page(states=states, topic=topic, kind=kind, before=before, limit=limit)
        return [row.record() for row in rows]

    async def find_unique(self, keys: Sequence[str]) -> dict[str, UUID]:
        await self._begin()
        return self._jobs.holders(keys)

    async def set_paused(self, topic: str, paused: bool) -> None:
        self._gates.set(topic, paused, await self._begin())
        if not paused:
            self._bell.ring("chronos_returned", topic)

    async def list_gates(self) -> list[Gate]:
        await self._begin()
        return self._gates.all()

    async def mark_idle(self, worker: UUID, topics: Sequence[str]) -> None:
        self._bell.mark(worker, topics, await self._begin())

    async def unmark_idle(self, worker: UUID) -> None:
        await self._begin()
        self._bell.unmark(worker)

    async def survey_topics(self, bound: int) -> list[TopicDepth]:
        return self._jobs.depths(await self._begin(), bound)

    async def survey_unserved(self, limit: int) -> dict[str, int]:
        served = self._presence.served_kinds(await self._begin())
        waiting = self._jobs.waiting_kinds(limit)
        return {kind: jobs for kind, jobs in waiting.items() if kind not in served}

    async def count_history(self, bound: int) -> HistoryCounts:
        await self._begin()
        return self._jobs.history.counts(bound)

    async def announce_worker(self, worker: WorkerInfo) -> None:
        self._presence.announce(worker, await self._begin())

    async def forget_worker(self, worker: UUID) -> None:
        await self._begin()
        self._presence.forget(worker)
        self.offers.forget(worker)
        self._bell.unmark(worker)

    async def prune_workers(self, older_than_s: float) -> None:
        before = await self._begin() - older_than_s
        self._presence.prune(before)
        self.offers.prune(before, self._presence.seen)
        self._bell.prune(before)

    async def make_partitions(self, days_ahead: int) -> int:
        return self._jobs.history.make_days(await self._begin(), days_ahead=days_ahead)

    async def prune_history(self, older_than_s: float) -> list[str]:
        before = await self._begin() - older_than_s
        self._jobs.history.prune_default(before)
        return self._jobs.history.drop_days(before)

    async def listen(
        self, heard: Heard, *, presence: int, probe_s: float, probe_deadline_s: float
    ) -> None:
        await self._bell.listen(heard, presence=presence, probe_s=probe_s)

    async def close(self) -> None:
        """Nothing to let go of: others may share this store, and all of it is in memory."""

    def _tell_supervisors(self, ended: Iterable[Row], now: float) -> None:
        if self._jobs.tell_supervisors(ended, now):
            self._bell.wake("chronos_ready", [SUPERVISE_TOPIC])
