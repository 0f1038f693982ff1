"""Where the executor keeps what it runs: its slots."""

import logging
import time

import anyio

from chronos_runtime.handlers import Handler
from chronos_runtime.job import Finish, Job, Outcome
from chronos_runtime.metrics import JobMeter
from chronos_runtime.outcomes import Outcomes, StopReason
from chronos_runtime.turns import NEVER, KindInTopic, TopicQueue

_log = logging.getLogger(__name__)


async def _nothing(job: Job, payload: object) -> None:
    """The handler of a slot that has had no job."""


_NO_KIND = KindInTopic(Handler.of(_nothing, "nothing"), JobMeter())


class Slot:
    """One long-lived task and the job it runs right now, if any."""

    __slots__ = (
        "deadline",
        "ended",
        "is_usual",
        "job",
        "kind",
        "queue",
        "reason",
        "scope",
        "started_at",
        "wake",
    )

    def __init__(self) -> None:
        self.job: Job | None = None
        self.kind = _NO_KIND
        """Of its job, or of the last one, as its queue is."""
        self.queue = TopicQueue(None)
        self.scope = anyio.CancelScope()
        self.reason: StopReason | None = None
        self.started_at = 0.0
        self.deadline = NEVER
        self.is_usual = False
        """Its job has no timeout that is ours to keep, and its topic no limit."""
        self.ended: Outcome | None = None
        """What the handler's own transaction has written."""
        self.wake = anyio.Event()

    @property
    def ran_s(self) -> float:
        """How long its job has run."""
        return time.monotonic() - self.started_at

    def set_deadline(self, job: Job) -> bool:
        """Give its job the time it may take; whether that is ours to keep."""
        timeout_s = self.kind.timeout_s if job.timeout_s is None else job.timeout_s
        if timeout_s is None or self.kind.handler.is_processor:
            return False
        self.deadline = self.started_at + timeout_s
        return True

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


def is_meant_for_us(error: BaseException) -> bool:
    """Whether it is for the process or the slot, whatever the handler was doing."""
    if isinstance(error, (KeyboardInterrupt, GeneratorExit)):
        return True
    return isinstance(error, anyio.get_cancelled_exc_class()) and is_being_stopped()
