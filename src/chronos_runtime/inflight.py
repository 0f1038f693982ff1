"""The registry of claimed jobs: the owner of every job between its claim and its outcome.

Channels carry hints; this table owns. A job enters when its claim returns and leaves when its
outcome is committed (or its lease is known to be lost), and in between it is in exactly one
place. So the law below always holds; it is asserted here and exported:

    claimed = queued + running + reporting + settled

A step is one number on the hot path: a job that starts is counted there and nowhere else, and what
is queued and running are differences. What waits to be reported is the rest of the table, so the
law holds what was counted against what is there.

It counts, too, what is left of each claim, so that the claimer can have claims forgotten that are
over: no job has their token any more. And it knows what the jobs of each claim have in common.

The heartbeater reads it from another thread: it only ever copies the table, which is one step
under the interpreter's lock.
"""

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import compress
from operator import is_
from uuid import UUID

from chronos_runtime.job import Job
from chronos_runtime.likeness import UNLIKE, Likeness, runs_of_tokens


class _Claim:
    """What is known of one claim."""

    __slots__ = ("left", "likeness")

    def __init__(self, likeness: Likeness) -> None:
        self.likeness = likeness
        """What its jobs have in common."""
        self.left = 0
        """How many of its jobs are not settled."""


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
        # By the bytes of their ids: to hash a UUID of asyncpg's, it makes a number of it: 0.25 µs.
        self._jobs: dict[bytes, Job] = {}
        self.unfinished: dict[str, int] = dict.fromkeys(limited, 0)
        """Queued and running jobs of the topics that have a limit."""
        self.low_water = 0
        """The claimer wants to hear when no more than so many jobs are queued; never, if -1."""
        self._claims: dict[UUID, _Claim] = {}  # By their tokens.
        self.claims_over: list[UUID] = []
        """The tokens of claims whose jobs are all settled, for the claimer to take out."""
        self._busy_s = 0.0  # Up to the last rest.
        self._busy_since: float | None = None
        self.claimed = 0
        self.started = 0
        """Jobs that left the queue: their handlers started, or they will not start any more."""
        self.ended = 0
        """Jobs that have an outcome."""
        self.settled = 0

    def __len__(self) -> int:
        return len(self._jobs)

    def __contains__(self, id: UUID) -> bool:
        return id.bytes in self._jobs

    def holds(self, job: Job) -> bool:
        """Whether this very claim is here; its id may be here again under a newer one."""
        return self._jobs.get(job.id.bytes) is job

    @property
    def queued(self) -> int:
        """Jobs that wait for a slot."""
        return self.claimed - self.started

    @property
    def running(self) -> int:
        """Jobs whose handlers run."""
        return self.started - self.ended

    @property
    def reporting(self) -> int:
        """Jobs whose outcomes wait to be written: all that are here but for those above."""
        return len(self._jobs) - self.queued - self.running

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs here, nor waits to."""
        return self.claimed == self.ended

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
        # Those refused count, too: their lease stands until they are given back.
        likeness = Likeness.of(jobs)
        for token, count in _count_tokens(jobs):
            claim = self._claims.setdefault(token, _Claim(likeness))
            claim.likeness = Likeness.among([claim.likeness, likeness])
            claim.left += count
        taken = self._take_in(jobs)
        if taken and self._busy_since is None:
            self._busy_since = self._clock()
        self._count(taken, 1)
        self.claimed += len(taken)
        self.check()
        return taken

    def _take_in(self, jobs: Sequence[Job]) -> list[Job]:
        here = map(self._jobs.setdefault, [job.id.bytes for job in jobs], jobs)
        return list(compress(jobs, map(is_, here, jobs)))

    def likeness_of(self, jobs: Sequence[Job]) -> Likeness:
        """What jobs have in common, as far as it is known from their claims."""
        claims = [self._claims.get(token) for token, _ in _count_tokens(jobs)]
        return Likeness.among([UNLIKE if claim is None else claim.likeness for claim in claims])

    @property
    def busy_s(self) -> float:
        """For how long, in all, any job was queued or running."""
        if self._busy_since is None:
            return self._busy_s
        return self._busy_s + self._clock() - self._busy_since

    def rest(self) -> None:
        """A slot found nothing to do: the process is idle from now on, unless others run jobs."""
        if self.is_idle:
            self._busy_s, self._busy_since = self.busy_s, None

    def start(self) -> bool:
        """A queued job's handler starts; whether the claimer wants to hear of it."""
        self.started += 1
        return self.claimed - self.started <= self.low_water

    def stop(self, job: Job) -> None:
        """A running job's handler ended: its outcome waits to be written."""
        self.ended += 1
        if self.unfinished and job.topic in self.unfinished:
            self.unfinished[job.topic] -= 1

    def unqueue(self, jobs: Sequence[Job]) -> None:
        """Queued jobs will not start: they wait to be given back."""
        self.started += len(jobs)
        self.ended += len(jobs)
        self._count(jobs, -1)

    def settle(self, ids: Iterable[UUID]) -> Likeness:
        """Outcomes are committed, or known to be stale: these jobs are not ours any more.

        What they had in common, as far as it is known.
        """
        jobs = list(map(self._jobs.pop, [id.bytes for id in ids]))
        self.settled += len(jobs)
        self.check()
        likenesses = []
        for token, count in _count_tokens(jobs):
            claim = self._claims.get(token)
            likenesses.append(UNLIKE if claim is None else claim.likeness)
            if claim is not None:
                claim.left -= count
                if claim.left == 0:
                    del self._claims[token]
                    self.claims_over.append(token)
        return Likeness.among(likenesses)

    def forget_claims(self, over: Collection[UUID]) -> None:
        """The store has forgotten these, of the claims that are over."""
        self.claims_over = [token for token in self.claims_over if token not in over]

    def keep_claim(self, token: UUID) -> None:
        """A job is about to be settled whose lease stands: its claim is not over, and not ours."""
        self._claims.pop(token, None)

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
        queued, running, reporting = self.queued, self.running, self.reporting
        assert min(queued, running, reporting) >= 0
        assert self.claimed == queued + running + reporting + self.settled


def _count_tokens(jobs: Sequence[Job]) -> Iterable[tuple[UUID, int]]:
    """How many jobs there are of each claim.

    To hash a token costs 0.18 µs. So a claim whose token came in several objects is counted in
    several parts.
    """
    runs = runs_of_tokens(jobs)
    if len(runs) == 1:
        return runs
    counts: dict[int, tuple[UUID, int]] = {}
    for token, run in runs:
        _, before = counts.get(id(token), (token, 0))
        counts[id(token)] = (token, before + run)
    return counts.values()
