"""The registry of claimed jobs: the owner of every job between its claim and its outcome.

Channels carry hints; this table owns. A job enters when its claim returns and leaves when its
outcome is committed (or its lease is known to be lost), and in between it is in exactly one
place. So the law below always holds; it is asserted here and exported:

    claimed = queued + running + reporting + settled

The heartbeater reads it from another thread: it only ever copies the table, which is one step
under the interpreter's lock.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from uuid import UUID

from chronos_runtime.job import Job


class Inflight:
    """Every job this process holds a lease on.

    >>> registry = Inflight(capacity=10)
    >>> registry.room
    10
    """

    def __init__(
        self,
        capacity: int,
        limited: Iterable[str] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.capacity = capacity
        self._clock = clock
        self._jobs: dict[UUID, Job] = {}
        self.unfinished: dict[str, int] = dict.fromkeys(limited, 0)
        """Queued and running jobs of the topics that have a limit."""
        self.low_water = 0
        """The claimer wants to hear when no more than so many jobs are queued."""
        self._busy_s = 0.0  # Up to the last rest.
        self._busy_since: float | None = None
        self.claimed = 0
        self.queued = 0
        self.running = 0
        self.reporting = 0
        self.settled = 0

    def __len__(self) -> int:
        return len(self._jobs)

    def __contains__(self, id: UUID) -> bool:
        return id in self._jobs

    def holds(self, job: Job) -> bool:
        """Whether this very claim is here; its id may be here again under a newer one."""
        return self._jobs.get(job.id) is job

    @property
    def room(self) -> int:
        """How many more jobs may be claimed."""
        return self.capacity - len(self._jobs)

    def claim(self, jobs: Sequence[Job]) -> list[Job]:
        """Take in a claimed batch; the jobs taken in.

        A job that is here already was reaped and claimed again by this very process while its
        old attempt still runs. The newer claim is refused, and the claimer gives it back: two
        runs of one job at once would be the double ownership the fence exists to prevent.
        """
        by_id = {job.id: job for job in jobs}
        taken = list(jobs)
        if not self._jobs.keys().isdisjoint(by_id):
            taken = [job for job in jobs if job.id not in self._jobs]
            by_id = {job.id: job for job in taken}
        if taken and self._busy_since is None:
            self._busy_since = self._clock()
        self._jobs.update(by_id)
        self._count(taken, 1)
        self.claimed += len(taken)
        self.queued += len(taken)
        self.check()
        return taken

    @property
    def busy_s(self) -> float:
        """For how long, in all, any job was queued or running."""
        if self._busy_since is None:
            return self._busy_s
        return self._busy_s + self._clock() - self._busy_since

    def rest(self) -> None:
        """A slot found nothing to do: the process is idle from now on, unless others run jobs."""
        if not self.queued and not self.running:
            self._busy_s, self._busy_since = self.busy_s, None

    def start(self) -> bool:
        """A queued job's handler starts; whether the claimer wants to hear of it."""
        self.queued = queued = self.queued - 1
        self.running += 1
        return queued <= self.low_water

    def stop(self, job: Job) -> None:
        """A running job's handler ended: its outcome waits to be written."""
        self.running -= 1
        self.reporting += 1
        if job.topic in self.unfinished:
            self.unfinished[job.topic] -= 1

    def unqueue(self, jobs: Sequence[Job]) -> None:
        """Queued jobs will not start: they wait to be given back."""
        self.queued -= len(jobs)
        self.reporting += len(jobs)
        self._count(jobs, -1)

    def settle(self, ids: Iterable[UUID]) -> None:
        """Outcomes are committed, or known to be stale: these jobs are not ours any more."""
        count = 0
        for id in ids:
            del self._jobs[id]
            count += 1
        self.reporting -= count
        self.settled += count
        self.check()

    def held_longer_than(self, age_s: float) -> list[Job]:
        """The jobs whose lease a beat must extend: claimed or extended at least so long ago.

        Short jobs end before their first beat, so a busy process hardly beats at all.
        """
        before = self._clock() - age_s
        jobs = list(self._jobs.values())
        return [job for job in jobs if job.claimed_at <= before]

    def _count(self, jobs: Sequence[Job], step: int) -> None:
        if self.unfinished:
            for job in jobs:
                if job.topic in self.unfinished:
                    self.unfinished[job.topic] += step

    def check(self) -> None:
        """Assert the conservation law."""
        assert min(self.queued, self.running, self.reporting) >= 0
        assert self.claimed == self.queued + self.running + self.reporting + self.settled
        assert len(self._jobs) == self.claimed - self.settled
