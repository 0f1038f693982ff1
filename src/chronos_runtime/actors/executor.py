"""The executor runs handlers, at most `concurrency` at once and no more per topic than allowed.

It is woken by its inbox. It refuses to create a task or a cancel scope per job: its slots are
long-lived tasks, each with one scope that is replaced only after it was used (a scope per job
costs 6-11 µs, a task 36; a no-op job 0.5). A cancel is aimed at a slot only while that runs the
very job, and a scope that was cancelled is never carried on to the next: none hits late.

It refuses, too, to keep the loop from its sockets: handlers that never wait are run by one slot
or two, for half a millisecond at a time, and others wake only for those that wait. (With all
slots awake a turn took 3 ms: 74,000 jobs/s, not 92,000.)

If it dies right now: jobs it ran or queued are given back by its slots on the way out; if the
whole process dies, their leases lapse and the watchdog of another process reaps them.
"""

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from uuid import UUID

import anyio
import anyio.lowlevel

from chronos_runtime.config import ExecutorConfig
from chronos_runtime.errors import InputError
from chronos_runtime.handlers import Handler
from chronos_runtime.inflight import Inflight
from chronos_runtime.job import Job, Outcome, Return
from chronos_runtime.metrics import Metrics
from chronos_runtime.nudge import Mailbox, Nudge
from chronos_runtime.outbox import Outbox
from chronos_runtime.outcomes import Outcomes, StopReason
from chronos_runtime.slot import Ending, Slot, is_being_stopped, is_meant_for_us
from chronos_runtime.transaction import Transaction, opener, refuse_transaction
from chronos_runtime.turns import NEVER, KindInTopic, TopicQueue, Turns

_TURN_S = 0.0005  # Handlers that never wait must let the loop breathe so often: 0.1 µs a job.
_BETWEEN_MAX = 2  # Slots that go on from job to job without a wait; more only make a turn longer.
_SWEEP_S = 0.1  # How late a timeout may be noticed.
_FOLD_JOBS = 1_000  # Metrics are summed up after so many: 0.4 µs a job, at once they cost 2.


class Executor:
    """Runs the handlers of claimed jobs."""

    name = "executor"

    def __init__(
        self,
        config: ExecutorConfig,
        handlers: Mapping[str, Handler],
        inflight: Inflight,
        metrics: Metrics,
        *,
        worker: str,
        inbox: Mailbox[Job],
        outbox: Outbox,
        room: Callable[[], None],
        transaction: Callable[[Job, Ending], Transaction] = refuse_transaction,
    ) -> None:
        self._config = config
        self._handlers = handlers
        self._inflight = inflight
        self._metrics = metrics
        self._progress = metrics.actors[self.name]
        self._inbox = inbox
        self._outbox = outbox
        self._room = room
        self._transaction = transaction
        self._outcomes = Outcomes(worker, config.result_max_bytes)
        self._turns = Turns(config.topic_concurrency)
        self._waiting = self._turns.waiting
        self._unfolded = 0
        self._slots: list[Slot] = []
        self._resting: list[Slot] = []
        self._timed = Nudge()  # A job with a timeout started: sweep closely.
        self._queued = Nudge()  # Jobs came, or a slot rests though there are any: wake others.
        self._turn_ends = 0.0
        self._is_closed = False

    async def run(self) -> None:
        """Serve until the inbox closes, then give back what never started."""
        self._slots = [Slot() for _ in range(self._config.concurrency)]
        self._resting = list(reversed(self._slots))
        try:
            async with anyio.create_task_group() as tasks:
                for slot in self._slots:
                    tasks.start_soon(self._serve, slot)
                tasks.start_soon(self._spread)
                tasks.start_soon(self._sweep_deadlines)
                while jobs := await self._inbox.take():
                    self._admit(jobs)
                self._is_closed = True
                self._timed()  # The sweep may be in its long sleep, and we end with it.
                self._queued()
                self._release(self._turns.clear())
                self._wake(len(self._slots))
        finally:
            self._release(self._turns.clear())

    def release_inbox(self) -> None:
        """Give back what came when nobody served the inbox any more."""
        self._release(self._inbox.take_now())

    def stop(self, id: UUID, reason: StopReason) -> None:
        """Stop the handler of a job, if it runs here; a queued job will not start."""
        for slot in self._slots:
            if slot.job is not None and slot.job.id == id:
                slot.stop(reason)
                return
        job = self._turns.remove(id)
        if job is not None:
            self._inflight.unqueue([job])
            self._outbox.put(self._outcomes.stopped(job, self._handlers[job.kind], reason, 0.0))

    def _admit(self, jobs: Sequence[Job]) -> None:
        with self._progress.measure() as rows:
            self._turns.admit(jobs, self._inflight.likeness_of(jobs).topic)
            rows(len(jobs))
        self._wake(1)
        if len(jobs) > 1:
            self._queued()
        self._unfolded += len(jobs)
        if self._unfolded >= _FOLD_JOBS:
            self._unfolded = 0
            self._metrics.fold()

    def _wake(self, count: int) -> None:
        for _ in range(min(count, len(self._resting))):
            self._resting.pop().wake.set()

    def _release(self, jobs: Sequence[Job]) -> None:
        self._inflight.unqueue(jobs)
        self._outbox.put_all(Return(job, "release") for job in jobs)

    async def _serve(self, slot: Slot) -> None:
        """One slot's life: job after job in one scope, a new scope after one was used."""
        opener.set(functools.partial(self._open, slot))
        await slot.wake.wait()
        while True:
            slot.reason = None
            try:
                with anyio.CancelScope() as slot.scope:
                    try:
                        await self._serve_until_stopped(slot)
                    finally:
                        if slot.job is not None:  # Stopped half-way, by us or with the process.
                            self._end(slot, self._stopped(slot, slot.job))
            except anyio.get_cancelled_exc_class():
                # A handler that cancelled its asyncio task and never took that back keeps the
                # scope from knowing its own cancellation. It must not cost the slot.
                if is_being_stopped():
                    raise
            if self._is_closed and not slot.scope.cancel_called:
                return

    async def _serve_until_stopped(self, slot: Slot) -> None:
        """Job after job, topic by topic in turn. What is usual stands here itself.

        Each job, a call of our own would cost 0.1 µs, a coroutine around its handler 0.2, to look
        up what is as before 0.06, and the clock 0.1: a job starts when the one before has ended.
        """
        waiting, inflight = self._waiting, self._inflight
        outbox, tell = self._outbox, self._outbox.nudge
        add_job, add_run_s = outbox.jobs.append, outbox.run_s.append
        queue, kind, is_usual = slot.queue, slot.kind, False
        function, decode, note_wait, note_run = kind.parts
        now = time.monotonic()
        while slot.reason is None and (waiting or not self._is_closed):
            if not waiting:
                inflight.rest()
                self._room()
                await self._rest(slot)
                now = time.monotonic()
                continue
            first = waiting[0]
            slot.job = job = first.jobs.popleft()
            slot.started_at = started_at = now
            if (
                first is not queue
                or job.kind != kind.name
                or not is_usual
                or job.timeout_s is not None
                or not first.jobs
                or len(waiting) > 1
            ):
                self._turn_to(slot, first, job)
                queue, kind, is_usual = first, slot.kind, slot.is_usual
                function, decode, note_wait, note_run = kind.parts
            note_wait(job.wait_s + now - job.claimed_at)
            inflight.started = started = inflight.started + 1
            if inflight.claimed - started <= inflight.low_water:
                self._room()
            try:
                result = await function(job, decode(job.payload))
            except BaseException as error:  # The user's code: anything may come.
                self._end(slot, self._broken(slot, job, error))
                now = time.monotonic()
            else:
                now = time.monotonic()
                run_s = now - started_at
                if is_usual and result is None and slot.ended is None and job.schedule_id is None:
                    # What `_end` does, and less for the reporter to look at: 0.3 µs a job.
                    slot.job = None
                    inflight.ended += 1
                    note_run(run_s)
                    add_job(job)
                    add_run_s(run_s)
                    if not tell.is_set:
                        tell()
                else:
                    self._end(slot, self._outcomes.returned(job, kind.handler, result, run_s))
            if now > self._turn_ends:
                self._turn_ends = now + _TURN_S
                await self._yield(slot)
                now = time.monotonic()

    def _turn_to(self, slot: Slot, queue: TopicQueue, job: Job) -> None:
        """The slot starts a job that has more to it than that it comes after one like it."""
        self._turns.pass_on(queue)
        kind = queue.kinds.get(job.kind)
        if kind is None:
            meter = self._metrics.meter(job.topic, job.kind)
            kind = queue.kinds[job.kind] = KindInTopic(self._handlers[job.kind], meter)
        slot.queue, slot.kind = queue, kind
        if slot.set_deadline(job):
            self._timed()
        slot.is_usual = not queue.is_limited and slot.deadline == NEVER

    async def _yield(self, slot: Slot) -> None:
        """The turn is over: let others have the loop, and leave the jobs to two slots or so."""
        if self._awake - self._inflight.running > _BETWEEN_MAX and not self._is_closed:
            await self._rest(slot)
        else:
            await anyio.lowlevel.checkpoint()

    async def _rest(self, slot: Slot) -> None:
        slot.wake = anyio.Event()
        self._resting.append(slot)
        if self._waiting:
            self._queued()
        await slot.wake.wait()

    @property
    def _awake(self) -> int:
        return len(self._slots) - len(self._resting)

    async def _spread(self) -> None:
        """While jobs are queued and every slot that is awake waits in its handler, wake others."""
        while not self._is_closed:
            await self._queued.wait()
            while self._resting and self._waiting:
                if self._inflight.running >= self._awake:
                    self._wake(_BETWEEN_MAX)
                await anyio.lowlevel.checkpoint()

    def _broken(self, slot: Slot, job: Job, error: BaseException) -> Outcome:
        """A handler raised; what is not its own goes on."""
        if is_meant_for_us(error):
            raise error
        is_cancelled = isinstance(error, anyio.get_cancelled_exc_class())
        if is_being_stopped() and not is_cancelled:
            return self._stopped(slot, job)  # It broke on the way out: that is not what ended it.
        # If cancelled, nobody did that: the handler let a cancellation of its own escape.
        return self._outcomes.failed(job, self._handlers[job.kind], error, slot.ran_s)

    def _open(self, slot: Slot, job: object) -> Transaction:
        if slot.job is None or slot.job is not job or slot.ended is not None:
            raise InputError("job.transaction(): this job has ended, or does not run here")
        handler = self._handlers[slot.job.kind]
        return self._transaction(slot.job, Ending(slot, slot.job, handler, self._outcomes))

    def _stopped(self, slot: Slot, job: Job) -> Outcome:
        return self._outcomes.stopped(job, self._handlers[job.kind], slot.reason, slot.ran_s)

    def _end(self, slot: Slot, outcome: Outcome) -> None:
        slot.job = None
        slot.deadline = NEVER
        if slot.ended is not None:
            outcome = slot.written(outcome)
        queue = slot.queue
        if queue.is_limited and queue.leave():
            self._waiting.append(queue)
        self._inflight.stop(outcome.job)
        slot.kind.note_run(outcome.run_s)
        self._outbox.put(outcome)

    async def _sweep_deadlines(self) -> None:
        """Stop what is over its time, and tell that the loop is alive."""
        while not (self._is_closed and not self._inflight.running):
            now = time.monotonic()
            for slot in self._slots:
                if slot.deadline <= now:
                    slot.stop("timeout")
            self._progress.progress()
            self._metrics.inbox_fill.set(self._inbox.fill)
            if self._is_closed or any(slot.deadline < NEVER for slot in self._slots):
                await anyio.sleep(_SWEEP_S)
            else:
                await self._timed.wait(1.0)
