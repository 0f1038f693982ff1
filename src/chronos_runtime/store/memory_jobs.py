"""The jobs of a `MemoryStore`: live rows by id, ended ones in the history, and how to find them."""

import heapq
import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from operator import attrgetter
from uuid import UUID

from chronos_runtime.errors import StoreError
from chronos_runtime.job import FinalState, Job, LiveState, State
from chronos_runtime.store import Checked, Claimed, Reaped, TopicDepth, Verdict, Wanted
from chronos_runtime.store.memory_history import History
from chronos_runtime.store.memory_lineage import attempt_row, fact_row, line_of
from chronos_runtime.store.memory_row import Row

_by_id = attrgetter("id")
_by_claim_order = attrgetter("claim_order")
_by_due_order = attrgetter("due_order")


class Jobs:
    """The rows of `chronos.jobs` and `chronos.job_history`.

    >>> jobs = Jobs()
    >>> (jobs.find(UUID(int=1)), jobs.is_key_taken(None))
    (None, False)
    """

    def __init__(self) -> None:
        self.live: dict[UUID, Row] = {}
        self.history = History()
        self.ended: Callable[[Row], None] = _ignore
        """Told of each job that ended."""
        self._keys: dict[str, UUID] = {}
        self._seqs = itertools.count(1)

    def __iter__(self) -> Iterator[Row]:
        return itertools.chain(self.live.values(), self.history)

    def next_seq(self) -> int:
        """The place of a new job in the order of claims."""
        return next(self._seqs)

    def insert(self, row: Row) -> bool:
        """Take a job in, unless a live one has its id or unique key; whether it went in."""
        if row.id in self.live or self.is_key_taken(row.unique_key):
            return False
        self.live[row.id] = row
        if row.unique_key is not None:
            self._keys[row.unique_key] = row.id
        return True

    def insert_all(self, rows: Sequence[Row]) -> None:
        """Take all of them in, or raise StoreError where one clashes and take none."""
        taken: set[UUID | str] = set(self.live) | set(self._keys)
        for row in rows:
            names: set[UUID | str] = {row.id}
            if row.unique_key is not None:
                names.add(row.unique_key)
            if names & taken:
                raise StoreError(f"job {row.id}: its id or its key {row.unique_key!r} is taken")
            taken |= names
        for row in rows:
            self.insert(row)

    def end(self, row: Row, state: FinalState, now: float) -> None:
        """Move a live job to the history."""
        del self.live[row.id]
        if row.unique_key is not None:
            del self._keys[row.unique_key]
        row.end(state, now)
        self.history.add(row)
        self.ended(row)

    def tell_supervisors(self, ended: Iterable[Row], now: float) -> bool:
        """Take in the failure facts of what just ended; whether there are any."""
        failed = sorted(
            (row for row in ended if row.state == "failed" and row.supervisor), key=_by_id
        )
        for task in failed:
            self.insert(fact_row(task, seq=self.next_seq(), now=now))
        return bool(failed)

    def start_attempt(
        self, task: UUID, id: UUID, *, payload: str | None, delay_s: float, now: float
    ) -> Row | None:
        """Take in the next attempt of a task that ended as failed; None: it did not."""
        failed = self.history.failed(task)
        if failed is None:
            return None
        row = attempt_row(
            failed,
            id,
            payload=payload,
            delay_s=delay_s,
            unique_key=None if self.is_key_taken(failed.unique_key) else failed.unique_key,
            seq=self.next_seq(),
            now=now,
        )
        return row if self.insert(row) else None

    def line(self, job_id: UUID) -> list[Row]:
        """The attempts of the line that a task belongs to, the first one first."""
        one = self.find(job_id)
        return [] if one is None else line_of(self, one)

    def revive(self, ids: Collection[UUID], now: float) -> list[Row]:
        """Bring dead letters back to life, all of them or none."""
        dead = self.history.dead(ids)
        revived = [row.revive(seq=self.next_seq(), now=now) for row in dead]
        self.insert_all(revived)
        for row in dead:
            self.history.remove(row)
        return revived

    def find(self, job_id: UUID) -> Row | None:
        """The job of that id: the live one, or how it ended last."""
        return self.live.get(job_id) or self.history.newest(job_id)

    def is_key_taken(self, key: str | None) -> bool:
        """Whether a live job holds this unique key."""
        return key is not None and key in self._keys

    def among(self, ids: Collection[UUID]) -> list[Row]:
        """The live jobs among these, in id order."""
        return [self.live[job_id] for job_id in sorted(self.live.keys() & set(ids))]

    def page(
        self,
        *,
        states: Collection[State] | None,
        topic: str | None,
        kind: str | None,
        before: UUID | None,
        limit: int,
    ) -> list[Row]:
        """The newest ids first, live or ended."""
        rows = [
            row
            for row in self
            if (states is None or row.state in states)
            and (topic is None or row.topic == topic)
            and (kind is None or row.kind == kind)
            and (before is None or row.id < before)
        ]
        return heapq.nlargest(limit, rows, key=_by_id)

    def holders(self, keys: Collection[str]) -> dict[str, UUID]:
        """The live jobs that hold these unique keys."""
        return {key: self._keys[key] for key in keys if key in self._keys}

    def in_state(self, state: LiveState) -> list[Row]:
        """The live jobs in that state, in the order they came in."""
        return [row for row in self.live.values() if row.state == state]

    def pick(self, wanted: Wanted, kinds: Collection[str]) -> list[Row]:
        """The ready jobs a claim takes from one topic."""
        candidates = (
            row
            for row in self.in_state("ready")
            if row.topic == wanted.topic
            and row.seq > wanted.frontiers[row.priority]
            and (wanted.ends is None or row.seq <= wanted.ends[row.priority])
            and row.kind in kinds
        )
        return heapq.nsmallest(wanted.room, candidates, key=_by_claim_order)

    def held(self, claim: Claimed | Job) -> Row | None:
        """The row of a claim, if the claim still stands."""
        row = self.live.get(claim.id)
        if row and row.lease_token == claim.lease_token and row.attempt == claim.attempt:
            return row
        return None

    def reap(self, row: Row, now: float) -> Reaped:
        """Take a job back whose lease ran out."""
        assert row.lease_token is not None
        token, state = row.lease_token, row.expire(now)
        if state == "ready":
            row.requeue(now, delay_s=None, gives_back=False)
        else:
            self.end(row, state, now)
        return Reaped(row.id, row.topic, row.kind, row.attempt, token, state)

    def expired(
        self, now: float, after: UUID, tokens: tuple[UUID, UUID] | None = None
    ) -> list[Row]:
        """Running jobs, in id order, whose lease ran out or whose token lies between two."""
        found = []
        for row in self.in_state("running"):
            assert row.lease_token is not None
            assert row.lease_until is not None
            is_lost = tokens is not None and tokens[0] <= row.lease_token <= tokens[1]
            if row.id > after and (is_lost or row.lease_until < now):
                found.append(row)
        return sorted(found, key=_by_id)

    def scheduled(self) -> list[Row]:
        """The jobs whose time has not come, the next one first."""
        return sorted(self.in_state("scheduled"), key=_by_due_order)

    def promote(self, limit: int, now: float) -> tuple[list[Row], float | None]:
        """Make due jobs ready; they, and in how many seconds the next one is due."""
        scheduled = self.scheduled()
        due = [row for row in scheduled if row.run_at <= now]
        for row in due[:limit]:
            row.state = "ready"
        next_due_s = scheduled[len(due)].run_at - now if len(due) < len(scheduled) else None
        return due[:limit], next_due_s

    def ready_by_topic(self) -> dict[str, Sequence[Row]]:
        """The ready jobs of each topic in the order of claims, topics by name."""
        rows = sorted(self.in_state("ready"), key=lambda row: (row.topic, *row.claim_order))
        return {topic: list(group) for topic, group in itertools.groupby(rows, attrgetter("topic"))}

    def waiting_kinds(self, limit: int) -> Counter[str]:
        """The kinds of the first `limit` ready jobs of each topic."""
        return Counter(row.kind for rows in self.ready_by_topic().values() for row in rows[:limit])

    def depths(self, now: float, bound: int) -> list[TopicDepth]:
        """How many jobs wait or run in each topic, no count going past `bound`."""
        depths = []
        for topic, rows in self.ready_by_topic().items():
            heads = {row.priority: row.run_at for row in reversed(rows)}  # The first one stays.
            jobs, oldest_s = min(len(rows), bound), now - min(heads.values())
            depths.append(TopicDepth(topic, "ready", jobs, len(rows) > bound, oldest_s))
        counted = self.scheduled()[: bound + 1]
        first_due = {row.topic: row.run_at for row in reversed(counted)}
        for topic, jobs in sorted(Counter(row.topic for row in counted).items()):
            is_bound, oldest_s = len(counted) > bound, now - first_due[topic]
            depths.append(TopicDepth(topic, "scheduled", min(jobs, bound), is_bound, oldest_s))
        running = Counter(row.topic for row in self.in_state("running"))
        for topic, jobs in sorted(running.items()):
            depths.append(TopicDepth(topic, "running", jobs, is_bound=False, oldest_s=None))
        return depths

    def verify(self, claim: Claimed, worker: str) -> Checked:
        """What became of a claim; see `verify_claims.sql` for the reasons."""
        live, done = self.live.get(claim.id), self.history.newest(claim.id)
        last_error = next((row.errors[-1] for row in (live, done) if row and row.errors), {})
        verdict: Verdict = "stale"
        if self.held(claim):
            verdict = "owned"
        elif last_error.get("type") == "LeaseExpired" and last_error["attempt"] == claim.attempt:
            pass
        elif done and done.lease_token == claim.lease_token and done.attempt == claim.attempt:
            verdict = "applied"
        elif live and live.lease_token is None:
            is_given_back = live.attempt == claim.attempt - 1
            wrote_last = bool(live.errors) and live.errors[-1].get("worker") == worker
            is_ours = live.attempt == claim.attempt and wrote_last
            verdict = "applied" if is_given_back or is_ours else "stale"
        tokens = [row.lease_token for row in (live, done) if row and row.lease_token]
        return Checked(verdict, tokens[0] if tokens else None)


def _ignore(row: Row) -> None:
    """For stores without schedules."""
