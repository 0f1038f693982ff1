"""Where the executor keeps what it runs: slots, and the claimed jobs of each topic."""

import logging
import time
from collections import deque

import anyio

from chronos_runtime.handlers import Handler
from chronos_runtime.job import Finish, Job, Outcome
from chronos_runtime.metrics import JobMeter
from chronos_runtime.outcomes import Outcomes, StopReason

NEVER = float("inf")

_log = logging.getLogger(__name__)


class KindInTopic:
    """A handler and the meter of its jobs in one topic: found together, once a job."""

    __slots__ = ("handler", "meter")

    def __init__(self, handler: Handler, meter: JobMeter) -> None:
        self.handler = handler
        self.meter = meter


class TopicQueue:
    """The claimed jobs of one topic, how many of them may run at once, and their kinds."""

    __slots__ = ("jobs", "kinds", "limit", "running")

    def __init__(self, limit: float) -> None:
        self.jobs: deque[Job] = deque()
        self.kinds: dict[str, KindInTopic] = {}
        self.limit = limit
        self.running = 0

    @property
    def may_start(self) -> bool:
        """Whether it has a job that its limit lets start."""
        return bool(self.jobs) and self.running < self.limit


class Slot:
    """One long-lived task and the job it runs right now, if any."""

    __slots__ = ("deadline", "ended", "job", "queue", "reason", "scope", "started_at", "wake")

    def __init__(self) -> None:
        self.job: Job | None = None
        self.queue = TopicQueue(NEVER)
        self.scope = anyio.CancelScope()
        self.reason: StopReason | None = None
        self.started_at = 0.0
        self.deadline = NEVER
        self.ended: Outcome | None = None
        """What the handler's own transaction has written."""
        self.wake = anyio.Event()

    @property
    def ran_s(self) -> float:
        """How long its job has run."""
        return time.monotonic() - self.started_at

    def stop(self, reason: StopReason) -> None:
        """Stop the handler of its job."""
        if self.reason is None:
            self.reason = reason
            self.scope.cancel()

    def written(self, outcome: Outcome) -> Outcome:
        """How its job has really ended, where the handler ended so after its transaction."""
        assert self.ended is not None
        written, self.ended = self.ended, None
        if outcome.error or (isinstance(outcome, Finish) and outcome.result):
            _log.warning(
                "the job had ended with its transaction: how its handler ended after that is not"
                " recorded (see Transaction.end_with)",
                extra={"job": str(written.job.id), "kind": written.job.kind},
            )
        return written


class Ending:
    """How a handler's own transaction ends the job of a slot."""

    def __init__(self, slot: Slot, job: Job, handler: Handler, outcomes: Outcomes) -> None:
        self._slot = slot
        self._job = job
        self._handler = handler
        self._outcomes = outcomes
        self.worker = outcomes.worker

    def judge(self, end: object) -> Outcome:
        """What is written for an end like this."""
        return self._outcomes.judged(self._job, self._handler, end, self._slot.ran_s)

    def note(self, written: Outcome) -> None:
        """It is written, and committed."""
        if self._slot.job is self._job:  # Else a task that the handler left behind did this.
            self._slot.ended = written


def is_being_stopped() -> bool:
    """Whether somebody cancelled a scope around this, the slot's own or one above."""
    return anyio.current_effective_deadline() == -NEVER
