"""The reporter writes outcomes, and never drops one.

It is woken by its outbox and always takes everything in it: at once when it is idle, in big
batches while a write is under way, and after a moment's wait where more jobs are queued than have
ended. It refuses to judge: what the executor
decided is what it writes. Each write is fenced by lease token and attempt. A write that matched
less than it was given is looked at again with a fresh snapshot: still ours (write again),
applied by an earlier try whose reply was lost (done), or stale (counted, logged, discarded).

If it dies right now: outcomes not yet written stay with it and are written after its restart;
if the process dies, their leases lapse and the jobs run again.
"""

import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

import anyio

from chronos_runtime.config import ReporterConfig
from chronos_runtime.errors import StoreError, StoreUnavailable
from chronos_runtime.failure import reason_record
from chronos_runtime.inflight import Inflight
from chronos_runtime.job import Finish, Job, Outcome, Return, Successes
from chronos_runtime.metrics import Metrics
from chronos_runtime.nudge import Nudge
from chronos_runtime.outbox import Outbox
from chronos_runtime.store import Claimed, Store
from chronos_runtime.tally import Tally, count_labels

# Sorts are told apart by `type(…) is`: isinstance on a msgspec struct costs 0.3 µs a job.

OutcomeT = TypeVar("OutcomeT", Finish, Return)

_GATHER_S = 0.002  # A write of one costs a busy server 5 ms; thousands come in this time.

_UNMATCHED = ""  # How an outcome "ended" whose claim matched no row.

_log = logging.getLogger(__name__)


class Reporter:
    """Writes what the executor ended with."""

    name = "reporter"

    def __init__(
        self,
        config: ReporterConfig,
        store: Store,
        inflight: Inflight,
        metrics: Metrics,
        *,
        worker: str,
        outbox: Outbox,
        room: Callable[[], None],
        returned: Callable[[], None],
        scheduled: Nudge,
    ) -> None:
        self._config = config
        self._store = store
        self._inflight = inflight
        self._metrics = metrics
        self._progress = metrics.actors[self.name]
        self._worker = worker
        self._outbox = outbox
        self._room = room
        self._returned = returned
        self._scheduled = scheduled
        # Taken off the outbox, not yet committed: survives a restart of this actor.
        self._successes = Successes((), ())
        self._finishes: list[Finish] = []
        self._returns: list[Return] = []
        self._tallies = {
            "succeeded": [metrics.succeeded],
            "dead": [metrics.failed, metrics.dead],
            "failed": [metrics.failed],
            "cancelled": [metrics.cancelled],
            "retry": [metrics.failed, metrics.retried],
            "snooze": [metrics.snoozed],
            "release": [metrics.released],
            "interrupt": [metrics.failed],
            "stale": [metrics.stale],
            "unwritable": [metrics.unwritable],
        }

    async def run(self) -> None:
        """Write until the outbox is closed and empty."""
        while True:
            if not (self._successes or self._finishes or self._returns):
                self._progress.progress(resting=True)
                await self._outbox.wait()
                if not len(self._outbox):
                    return
                await self._take()
            await self.report_once()

    async def _take(self) -> None:
        if len(self._outbox) < self._inflight.queued:
            await anyio.sleep(_GATHER_S)  # They stay in the outbox: a crash here loses none.
        self._successes = self._outbox.take_successes()
        outcomes = self._settle_written(self._outbox.take_now())
        self._finishes = [one for one in outcomes if type(one) is Finish]
        self._returns = [one for one in outcomes if type(one) is Return]

    async def report_once(self) -> None:
        """Write one batch of each sort."""
        with self._progress.measure() as rows:
            self._metrics.outbox_fill.set(self._outbox.fill)
            rows(await self._write_successes(self._config.batch_max))
            rows(await self._write_first(self._finishes, self._config.batch_max))
            rows(await self._write_first(self._returns, self._config.return_batch_max))
        self._room()

    async def _write_successes(self, most: int) -> int:
        """Write the first plain successes and forget them; how many. Together, as all go well."""
        jobs, run_s = self._successes.jobs, self._successes.run_s
        batch = Successes(jobs[:most], run_s[:most])
        if not batch:
            return 0
        try:
            written = await self._store.finish_jobs(batch)
        except StoreUnavailable:
            raise
        except StoreError:
            written = ()
        self._successes = Successes(jobs[most:], run_s[most:])
        if len(written) == len(batch):
            self._settle(batch.jobs, [self._metrics.succeeded])
        else:
            self._finishes += batch  # Each by itself, also what has been written.
        return len(batch)

    async def _write_first(self, pending: list[OutcomeT], most: int) -> int:
        """Write the first outcomes and forget them; how many."""
        batch, settled = pending[:most], self._inflight.settled
        try:
            await self._write(batch)
        finally:
            is_done = self._inflight.settled - settled == len(batch)
            pending[:most] = [] if is_done else [one for one in batch if self._is_ours(one)]
        return len(batch)

    def _is_ours(self, outcome: Outcome) -> bool:
        return self._inflight.holds(outcome.job)

    async def _write(self, outcomes: Sequence[Outcome]) -> None:
        """Write a batch until nothing of it is ours any more."""
        while outcomes:
            try:
                ends = await self._send(outcomes)
            except StoreUnavailable:
                raise
            except StoreError as error:
                if len(outcomes) > 1:  # One bad outcome must not stop the others.
                    for outcome in outcomes:
                        await self._write([outcome])
                else:
                    await self._write_plainly(outcomes[0], error)
                return
            if _UNMATCHED not in ends:
                self._settle_as(outcomes, ends)
                return
            pairs = list(zip(outcomes, ends, strict=True))
            self._settle_as([one for one, end in pairs if end], [end for end in ends if end])
            outcomes = await self._look_again([one for one, end in pairs if not end])

    async def _send(self, outcomes: Sequence[Outcome]) -> list[str]:
        """Write outcomes of one sort; how each ended, or that its claim matched no row."""
        finishes = [one for one in outcomes if type(one) is Finish]
        if finishes:
            assert len(finishes) == len(outcomes), "a batch holds outcomes of one sort"
            written = await self._store.finish_jobs(finishes)
            if [one for one in finishes if one.job.schedule_id is not None]:
                self._scheduled()  # An occurrence may have waited for this fire to end.
            if len(written) == len(finishes):
                return [one.state for one in finishes]
            ids = set(written)
            return [one.state if one.job.id in ids else _UNMATCHED for one in finishes]
        returns = [one for one in outcomes if type(one) is Return]
        states = await self._store.return_jobs(returns)
        if "ready" in states.values():
            self._returned()
        if "scheduled" in states.values():
            self._scheduled()
        return [_end_of_return(one, states.get(one.job.id)) for one in returns]

    async def _look_again(self, unmatched: Sequence[Outcome]) -> list[Outcome]:
        """Why outcomes matched no row; those that are still ours."""
        if not unmatched:
            return []
        claims = [Claimed(one.job.id, one.job.lease_token, one.job.attempt) for one in unmatched]
        checks = await self._store.verify_claims(claims, self._worker)
        by_verdict: dict[str, list[Outcome]] = {"owned": [], "applied": [], "stale": []}
        for one in unmatched:
            check = checks[one.job.id]
            # An end is applied only if the history has it, under our token.
            is_elsewhere = type(one) is Finish and check.current_token != one.job.lease_token
            verdict = "stale" if is_elsewhere else check.verdict
            by_verdict[verdict].append(one)
            if verdict == "stale":
                _log.warning(
                    "stale outcome rejected: the claim was lost",
                    extra={
                        "job": str(one.job.id),
                        "kind": one.job.kind,
                        "attempt": one.job.attempt,
                        "token": str(one.job.lease_token),
                        "current_token": str(check.current_token),
                    },
                )
        applied, stale = by_verdict["applied"], by_verdict["stale"]
        self._settle_as(applied, [_end(one) for one in applied])
        self._settle_as(stale, ["stale"] * len(stale))
        return by_verdict["owned"]

    async def _write_plainly(self, outcome: Outcome, refusal: StoreError) -> None:
        """The database refuses this outcome for good: write it bare, or leave it to its lease."""
        job = outcome.job
        _log.error("outcome refused: %s", refusal, extra={"job": str(job.id), "kind": job.kind})
        note = reason_record("Unwritable", str(refusal), attempt=job.attempt, worker=self._worker)
        bare: Outcome
        if type(outcome) is Finish:
            bare = Finish(job, outcome.state, outcome.run_s, error=note)
        else:
            bare = Return(job, outcome.why, outcome.run_s, outcome.delay_s, note)
        try:
            [end] = await self._send([bare])
            if end:
                self._settle_as([bare], [end])
            else:
                await self._look_again([bare])  # Still ours: it is tried again with the next batch.
        except StoreUnavailable:
            raise
        except StoreError:
            # Forgotten here, so nobody beats for it any more: it is reaped and runs again.
            self._inflight.keep_claim(job.lease_token)
            self._settle_as([bare], ["unwritable"])

    def _settle_written(self, outcomes: list[Outcome]) -> list[Outcome]:
        """Count what transactions of handlers have written; the others."""
        written = [one for one in outcomes if one.is_written]
        if not written:
            return outcomes
        self._settle_as(written, [_end(one) for one in written])
        returns = [one for one in written if type(one) is Return]
        if any(not one.delay_s for one in returns):
            self._returned()
        if any(one.delay_s for one in returns) or any(one.job.schedule_id for one in written):
            self._scheduled()
        return [one for one in outcomes if not one.is_written]

    def _settle_as(self, outcomes: Sequence[Outcome], ends: Sequence[str]) -> None:
        """Let go of outcomes that ended so."""
        for end in set(ends):
            ended = [one.job for one, its in zip(outcomes, ends, strict=True) if its == end]
            self._settle(ended, self._tallies[end])

    def _settle(self, jobs: Sequence[Job], tallies: Sequence[Tally]) -> None:
        """Let go of jobs that ended in one way, and count them: once a batch, not once a job."""
        likeness = self._inflight.settle([job.id for job in jobs])
        for labels, count in count_labels(jobs, likeness):
            for tally in tallies:
                tally.add(labels, count)


def _end(outcome: Outcome) -> str:
    return outcome.state if type(outcome) is Finish else outcome.why


def _end_of_return(outcome: Return, state: str | None) -> str:
    """A job that somebody asked to cancel meanwhile was not given back but ended."""
    if state is None:
        return _UNMATCHED
    return "cancelled" if state == "cancelled" else outcome.why
