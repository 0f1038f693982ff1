"""What the actors and the client ask of durable state: one protocol, two implementations.

`PostgresStore` is the real one and its package the only place that speaks SQL; `MemoryStore` is
an exact model of it for simulation and for users' own tests. One contract suite runs on both.

Every method is one round trip, uses the store's clock, states its precondition and returns
what it won. `StoreUnavailable` means "perhaps later"; it may also mean that the write happened
and only its reply was lost, so every write can be sent again or looked up afterwards.
"""

from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from typing import Literal, Protocol
from uuid import UUID

import msgspec

from chronos_runtime.job import Finishes, Job, LiveState, Return, State
from chronos_runtime.store.offers import OfferStore
from chronos_runtime.store.records import JobRecord as JobRecord
from chronos_runtime.store.records import NewJob as NewJob
from chronos_runtime.store.schedules import ScheduleStore

Verdict = Literal["owned", "applied", "stale"]
CancelResult = Literal["cancelled", "requested"]


class Wanted(msgspec.Struct):
    """One topic of a claim: how many jobs at most, and where to look, priority by priority."""

    topic: str
    room: int
    frontiers: list[int]
    """The seqs to look beyond."""
    ends: list[int] | None = None
    """The last seqs to look at; None: on to the end. All topics of a claim have them, or none."""


class Claimed(msgspec.Struct, frozen=True):
    """A claim as it is written back: what fences it."""

    id: UUID
    lease_token: UUID
    attempt: int


class Checked(msgspec.Struct, frozen=True):
    """What became of a claim, and the lease token now on record."""

    verdict: Verdict
    current_token: UUID | None


class Reaped(msgspec.Struct, frozen=True):
    """A job taken back from a worker that stopped beating."""

    id: UUID
    topic: str
    kind: str
    attempt: int
    lease_token: UUID
    state: Literal["ready", "dead", "failed", "cancelled"]


class Promotion(msgspec.Struct, frozen=True):
    """How many jobs a promote pass made ready, and when the next one is due."""

    promoted: int
    next_due_s: float | None


class TopicDepth(msgspec.Struct, frozen=True):
    """Jobs of one topic in one live state; at least `jobs` when `is_bound`."""

    topic: str
    state: LiveState
    jobs: int
    is_bound: bool
    oldest_s: float | None


class Gate(msgspec.Struct, frozen=True):
    """The pause gate of a topic, or of all of them under the name `*`."""

    topic: str
    paused: bool
    updated_at: datetime


class HistoryCounts(msgspec.Struct, frozen=True):
    """Ended jobs: bounded counts of the exceptions, an estimate of the whole."""

    dead: int
    cancelled: int
    failed: int
    estimate: int


class WorkerInfo(msgspec.Struct, frozen=True):
    """What a process says about itself, for people."""

    id: UUID
    host: str
    pid: int
    version: str
    topics: list[str]
    kinds: list[str]


Heard = Callable[[str, str], None]
"""Called with the channel and the payload of a notification."""


class Store(Protocol):
    """Durable state, one method per statement. See the module's docstring for the manners."""

    @property
    def schedules(self) -> ScheduleStore:
        """The part that keeps schedules and alarms."""

    @property
    def offers(self) -> OfferStore:
        """The part that keeps the offers of idle workers."""

    async def enqueue_jobs(self, jobs: Sequence[NewJob]) -> Collection[UUID]:
        """Insert; the ids that went in, each once. Others clash with a live job's id or key.

        A plain job that comes alone is handed to whoever offered to take it.
        """

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
        """Lease ready jobs of unpaused topics, ordered by priority, then by seq.

        `over` are the tokens of earlier claims that no job has any more.
        """

    async def release_claim(self, token: UUID) -> int:
        """Give back, attempts and all, what a claim took whose reply was lost; how many."""

    async def finish_jobs(self, finishes: Finishes) -> Collection[UUID]:
        """Move ended jobs to the history; the ids whose claim still stood."""

    async def return_jobs(self, returns: Sequence[Return]) -> dict[UUID, str]:
        """Give jobs back to the queue; id → scheduled, ready, or cancelled where asked for."""

    async def verify_claims(self, claims: Sequence[Claimed], worker: str) -> dict[UUID, Checked]:
        """What became of claims whose write matched nothing, by a fresh look."""

    async def verify_leases(self, claims: Sequence[Claimed], worker: str) -> dict[UUID, Checked]:
        """The same for the heartbeater, who must not wait behind a report."""

    async def extend_leases(self, claims: Sequence[Claimed], lease_s: float) -> dict[UUID, bool]:
        """Extend; id → whether a cancel was asked for. What is missing may just be locked."""

    async def reap_jobs(
        self, *, limit: int, after: UUID, dead_worker: tuple[UUID, UUID] | None = None
    ) -> list[Reaped]:
        """Take back expired leases, and all leases of a worker known dead, in id order."""

    async def list_expired(self, *, limit: int, after: UUID) -> list[UUID]:
        """The ids of expired leases in id order, for stepping over rows that fail together."""

    async def review_claims(self, limit: int) -> int:
        """Forget claims, left behind by whoever made them, that no job has; how many."""

    async def note_claims(self, *, limit: int, after: UUID) -> tuple[UUID | None, int]:
        """Walk over jobs and note leases that belong to no claim, so that they are reaped.

        Where the walk stopped (None: at the end), and how many leases there were.
        """

    async def promote_jobs(self, limit: int) -> Promotion:
        """Make due scheduled jobs ready."""

    async def cancel_jobs(self, ids: Sequence[UUID]) -> dict[UUID, CancelResult]:
        """Cancel what waits, ask what runs; ids without a live job are missing."""

    async def retry_jobs(self, ids: Sequence[UUID]) -> set[UUID]:
        """Bring dead jobs back as ready; the ids revived."""

    async def discard_jobs(self, ids: Sequence[UUID]) -> set[UUID]:
        """Take dead jobs off the dead letters; the ids discarded."""

    async def start_attempt(
        self, task: UUID, *, id: UUID, payload: str | None, delay_s: float
    ) -> bool:
        """Insert the next attempt of a task that ended as failed; whether it was one.

        No payload: the same. Its unique key goes along, unless a live job bears it by now.
        """

    async def escalate_jobs(self, ids: Sequence[UUID]) -> set[UUID]:
        """Put tasks that ended as failed with the dead letters; the ids escalated."""

    async def list_lineage(self, id: UUID, limit: int) -> list[JobRecord]:
        """The attempts of the line that a task belongs to, the first one first."""

    async def get_jobs(self, ids: Sequence[UUID]) -> dict[UUID, JobRecord]:
        """Read jobs, live or ended."""

    async def list_jobs(
        self,
        *,
        states: Sequence[State] | None,
        topic: str | None,
        kind: str | None,
        before: UUID | None,
        limit: int,
    ) -> list[JobRecord]:
        """One page, newest id first."""

    async def find_unique(self, keys: Sequence[str]) -> dict[str, UUID]:
        """The live jobs that hold these unique keys."""

    async def set_paused(self, topic: str, paused: bool) -> None:
        """Close or open a topic's gate, or all of them under `*`."""

    async def list_gates(self) -> list[Gate]:
        """Every gate that was ever touched."""

    async def mark_idle(self, worker: UUID, topics: Sequence[str]) -> None:
        """Ask to be notified of new jobs in these topics."""

    async def unmark_idle(self, worker: UUID) -> None:
        """Take that back."""

    async def survey_topics(self, bound: int) -> list[TopicDepth]:
        """Depth and oldest age per topic and state, no count going past `bound`."""

    async def survey_unserved(self, limit: int) -> dict[str, int]:
        """Kinds no worker seen lately serves, among the first `limit` ready jobs of each topic."""

    async def count_history(self, bound: int) -> HistoryCounts:
        """Ended jobs, bounded and estimated."""

    async def announce_worker(self, worker: WorkerInfo) -> None:
        """Say that this process is here."""

    async def forget_worker(self, worker: UUID) -> None:
        """Say that it left: presence, marks and offer go."""

    async def prune_workers(self, older_than_s: float) -> None:
        """Drop presence and marks nobody refreshed, and the offers of whoever is gone."""

    async def make_partitions(self, days_ahead: int) -> int:
        """Make the history partitions of today and the days ahead; how many were new."""

    async def prune_history(self, older_than_s: float) -> list[str]:
        """Drop the history of days that ended before that; the partitions dropped."""

    async def listen(
        self, heard: Heard, *, presence: int, probe_s: float, probe_deadline_s: float
    ) -> None:
        """Deliver notifications until the connection dies or a probe goes unanswered.

        `presence` is any number that nobody else listens by: offers name it.
        """

    async def close(self) -> None:
        """Let go of every connection."""
