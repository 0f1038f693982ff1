"""The executor runs handlers, at most `concurrency` at once and no more per topic than allowed.

It is woken by its inbox. It refuses to create a task or a cancel scope per job: its slots are
long-lived tasks, each with one scope that is replaced only after it was used (a scope per job
costs 6-11 µs, a task 36 µs; a no-op job in all costs about 5). A cancel is aimed at a slot only
while that slot runs the very job, and a scope that was cancelled is never carried on to the
next job, so a late cancel hits nobody.

If it dies right now: jobs it ran or queued are given back by its slots on the way out; if the
whole process dies, their leases lapse and the watchdog of another process reaps them.
"""

import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

import anyio
import anyio.lowlevel

from chronos_runtime.config import ExecutorConfig
from chronos_runtime.handlers import Handler
from chronos_runtime.inflight import Inflight
from chronos_runtime.job import Job, Outcome, Return
from chronos_runtime.metrics import JobMeter, Metrics
from chronos_runtime.nudge import Mailbox, Nudge
from chronos_runtime.outcomes import Outcomes, StopReason

_JOBS_PER_TURN = 8  # Handlers that never wait must still let the loop breathe: 0.5 µs a job.
_SWEEP_S = 0.1  # How late a timeout may be noticed.
_NEVER = float("inf")
_FOLD_JOBS = 1_000  # Metrics are summed up after so many: 0.4 µs a job, at once they cost 2.


class _Queue:
    """The claimed jobs of one topic, how many of them may run at once, and their meters."""

    __slots__ = ("jobs", "limit", "meters", "running")

    def __init__(self, limit: float) -> None:
        self.jobs: deque[Job] = deque()
        self.limit = limit
        self.meters: dict[str, JobMeter] = {}
        self.running = 0


class _Slot:
    """One long-lived task and the job it runs right now, if any."""

    __slots__ = ("deadline", "job", "meter", "queue", "reason", "scope", "started_at", "wake")

    def __init__(self) -> None:
        self.job: Job | None = None
        self.queue = _Queue(_NEVER)
        self.meter = JobMeter()
        self.scope = anyio.CancelScope()
        self.reason: StopReason | None = None
        self.started_at = 0.0
        self.deadline = _NEVER
        self.wake = anyio.Event()


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
        outbox: Mailbox[Outcome],
        room: Nudge,
    ) -> None:
        self._config = config
        self._handlers = handlers
        self._inflight = inflight
        self._metrics = metrics
        self._progress = metrics.actors[self.name]
        self._inbox = inbox
        self._outbox = outbox
        self._room = room
        self._outcomes = Outcomes(worker, config.result_max_bytes)
        self._queues: dict[str, _Queue] = {}
        self._turns: deque[_Queue] = deque()  # Those that have jobs, in turn.
        self._unfolded = 0
        self._doomed: dict[UUID, StopReason] = {}
        self._slots: list[_Slot] = []
        self._resting: list[_Slot] = []
        self._timed = Nudge()  # A job with a timeout started: sweep closely.
        self._is_closed = False

    async def run(self) -> None:
        """Serve until the inbox closes, then give back what never started."""
        self._slots = [_Slot() for _ in range(self._config.concurrency)]
        self._resting = []
        try:
            async with anyio.create_task_group() as tasks:
                for slot in self._slots:
                    tasks.start_soon(self._serve, slot)
                tasks.start_soon(self._sweep_deadlines)
                while jobs := await self._inbox.take():
                    self._admit(jobs)
                self._is_closed = True
                self._timed()  # The sweep may be in its long sleep, and we end with it.
                self._release_queued()
                self._wake(len(self._slots))
        finally:
            self._release_queued()

    def release_inbox(self) -> None:
        """Give back what came when nobody served the inbox any more."""
        self._release(self._inbox.take_now())

    def stop(self, id: UUID, reason: StopReason) -> None:
        """Stop the handler of a job, if it runs here; a queued job will not start."""
        for slot in self._slots:
            if slot.job is not None and slot.job.id == id:
                self._stop_slot(slot, reason)
                return
        if any(job.id == id for queue in self._turns for job in queue.jobs):
            self._doomed[id] = reason

    def _stop_slot(self, slot: _Slot, reason: StopReason) -> None:
        if slot.reason is None:
            slot.reason = reason
            slot.scope.cancel()

    def _admit(self, jobs: Iterable[Job]) -> None:
        with self._progress.measure() as rows:
            count = 0
            for job in jobs:
                queue = self._queues.get(job.topic)
                if queue is None:
                    queue = _Queue(self._config.topic_concurrency.get(job.topic, _NEVER))
                    self._queues[job.topic] = queue
                if not queue.jobs:
                    self._turns.append(queue)
                queue.jobs.append(job)
                count += 1
            rows(count)
        self._wake(count)
        self._unfolded += count
        if self._unfolded >= _FOLD_JOBS:
            self._unfolded = 0
            self._metrics.fold()

    def _wake(self, count: int) -> None:
        for _ in range(min(count, len(self._resting))):
            self._resting.pop().wake.set()

    def _release_queued(self) -> None:
        jobs = [job for queue in self._turns for job in queue.jobs]
        for queue in self._turns:
            queue.jobs.clear()
        self._turns.clear()
        self._doomed.clear()
        self._release(jobs)

    def _release(self, jobs: Sequence[Job]) -> None:
        self._inflight.unqueue(jobs)
        self._outbox.put_all(Return(job, "release") for job in jobs)

    def _next_job(self, slot: _Slot) -> Job | None:
        """The next job that may start, topic by topic in turn; it counts as running."""
        turns = self._turns
        for _ in range(len(turns)):
            queue = turns[0]
            if queue.running >= queue.limit:
                turns.rotate(-1)
                continue
            job = queue.jobs.popleft()
            queue.running += 1
            slot.queue = queue
            if queue.jobs:
                turns.rotate(-1)
            else:
                turns.popleft()
            return job
        return None

    async def _serve(self, slot: _Slot) -> None:
        """One slot's life: job after job in one scope, a new scope after one was used."""
        while True:
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
                if _is_being_stopped():
                    raise
            if self._is_closed and not slot.scope.cancel_called:
                return

    async def _serve_until_stopped(self, slot: _Slot) -> None:
        served = 0
        while not slot.scope.cancel_called:
            job = self._next_job(slot)
            if job is None:
                if self._is_closed:
                    return
                served = 0
                slot.wake = anyio.Event()
                self._resting.append(slot)
                await slot.wake.wait()
                continue
            self._end(slot, await self._run(slot, job))
            served += 1
            if served % _JOBS_PER_TURN == 0:
                await anyio.lowlevel.checkpoint()

    async def _run(self, slot: _Slot, job: Job) -> Outcome:
        """Run one handler to its outcome; cancellation passes through."""
        handler = self._handlers[job.kind]
        self._begin(slot, job, handler)
        if self._doomed and (reason := self._doomed.pop(job.id, None)):
            slot.reason = reason
            return self._stopped(slot, job)
        try:
            payload = handler.decode(job.payload)
            result = await handler.function(job, payload)
        except (KeyboardInterrupt, GeneratorExit):
            raise  # Meant for the process, whatever it was doing.
        except anyio.get_cancelled_exc_class() as error:
            if _is_being_stopped():
                raise
            # Nobody cancelled it: the handler let a cancellation of its own escape.
            return self._outcomes.failed(job, handler, error, _ran(slot))
        except BaseException as error:  # The user's code: anything may come.
            if _is_being_stopped():  # It broke on the way out: that is not what ended it.
                return self._stopped(slot, job)
            return self._outcomes.failed(job, handler, error, _ran(slot))
        return self._outcomes.returned(job, handler, result, _ran(slot))

    def _stopped(self, slot: _Slot, job: Job) -> Outcome:
        return self._outcomes.stopped(job, self._handlers[job.kind], slot.reason, _ran(slot))

    def _begin(self, slot: _Slot, job: Job, handler: Handler) -> None:
        started = time.monotonic()
        slot.job = job
        slot.reason = None
        slot.started_at = started
        timeout_s = job.timeout_s if job.timeout_s is not None else handler.timeout_s
        if timeout_s is not None:
            slot.deadline = started + timeout_s
            self._timed()
        self._inflight.start()
        slot.meter = slot.queue.meters.get(job.kind) or self._new_meter(slot.queue, job)
        slot.meter.waits.append(job.wait_s + started - job.claimed_at)
        if self._inflight.queued <= self._inflight.low_water:
            self._room()

    def _end(self, slot: _Slot, outcome: Outcome) -> None:
        slot.job = None
        slot.deadline = _NEVER
        job = outcome.job
        slot.queue.running -= 1
        self._inflight.stop(job)
        slot.meter.runs.append(outcome.run_s)
        self._outbox.put(outcome)
        if self._inflight.queued <= self._inflight.low_water:
            self._room()

    def _new_meter(self, queue: _Queue, job: Job) -> JobMeter:
        meter = queue.meters[job.kind] = self._metrics.meter(job.topic, job.kind)
        return meter

    async def _sweep_deadlines(self) -> None:
        """Stop what is over its time, and tell that the loop is alive."""
        while not (self._is_closed and not self._inflight.running):
            now = time.monotonic()
            for slot in self._slots:
                if slot.deadline <= now:
                    self._stop_slot(slot, "timeout")
            self._progress.progress()
            self._metrics.inbox_fill.set(self._inbox.fill)
            if self._is_closed or any(slot.deadline < _NEVER for slot in self._slots):
                await anyio.sleep(_SWEEP_S)
            else:
                await self._timed.wait(1.0)


def _is_being_stopped() -> bool:
    """Whether somebody cancelled a scope around this, the slot's own or one above."""
    return anyio.current_effective_deadline() == -_NEVER


def _ran(slot: _Slot) -> float:
    return time.monotonic() - slot.started_at
