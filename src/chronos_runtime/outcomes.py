"""From how a handler ended to what is written: the one place where a failure is judged."""

import logging
from typing import Literal, assert_never

from chronos_runtime.checks import checked_delay
from chronos_runtime.errors import PermanentFailure, TemporaryFailure
from chronos_runtime.failure import failure_record, reason_record
from chronos_runtime.handlers import Handler
from chronos_runtime.job import Cancel, Discard, Finish, Job, Outcome, Retry, Return, Snooze
from chronos_runtime.payload import encode_result

StopReason = Literal["timeout", "cancel", "lost"]

_log = logging.getLogger(__name__)


class Outcomes:
    """Judges how attempts of this worker ended."""

    def __init__(self, worker: str, result_max_bytes: int) -> None:
        self.worker = worker
        self._result_max_bytes = result_max_bytes

    def judged(self, job: Job, handler: Handler, end: object, run_s: float) -> Outcome:
        """The handler ended so: it returned this, or raised it."""
        if isinstance(end, BaseException):
            return self.failed(job, handler, end, run_s)
        return self.returned(job, handler, end, run_s)

    def returned(self, job: Job, handler: Handler, result: object, run_s: float) -> Outcome:
        """The handler returned: a result, or a decision."""
        if result is None:
            return Finish(job, "succeeded", run_s)
        try:
            match result:
                case Snooze():
                    delay_s = checked_delay(result.for_s, "Snooze.for_s")
                    return Return(job, "snooze", run_s, delay_s)
                case Retry():
                    delay_s = checked_delay(result.after_s, "Retry.after_s")
                    return self._retry_or_dead(
                        job, delay_s, self._reason(job, "Retry", result.reason), run_s
                    )
                case Cancel():
                    error = self._reason(job, "Cancel", result.reason)
                    return Finish(job, "cancelled", run_s, error=error)
                case Discard():
                    error = self._reason(job, "Discard", result.reason)
                    return Finish(job, job.failed_state, run_s, error=error)
        except Exception as error:  # A decision that makes no sense is a failure like another.
            return self.failed(job, handler, error, run_s)
        text, trouble = encode_result(result, self._result_max_bytes)
        if trouble:
            _log.warning("result %s", trouble, extra={"job": str(job.id), "kind": job.kind})
        return Finish(job, "succeeded", run_s, result=text)

    def failed(self, job: Job, handler: Handler, error: BaseException, run_s: float) -> Outcome:
        """The handler raised."""
        record = failure_record(error, attempt=job.attempt, worker=self.worker)
        _log.info(
            "attempt failed: %s",
            type(error).__name__,
            extra={"job": str(job.id), "kind": job.kind, "attempt": job.attempt},
        )
        if job.line is not None or isinstance(error, PermanentFailure):
            return Finish(job, job.failed_state, run_s, error=record)
        try:
            if isinstance(error, TemporaryFailure) and error.after_s is not None:
                delay_s = checked_delay(error.after_s, "TemporaryFailure.after_s")
            else:
                delay_s = checked_delay(handler.backoff(job.attempt), f"backoff of {job.kind!r}")
        except Exception as broken:  # The user's callable: the job must come back all the same.
            _log.warning("backoff of %s failed, waiting 60 s: %s", job.kind, broken)
            delay_s = 60.0
        return self._retry_or_dead(job, delay_s, record, run_s)

    def stopped(
        self, job: Job, handler: Handler, reason: StopReason | None, run_s: float
    ) -> Outcome:
        """The handler was stopped; no reason means that the process goes down."""
        match reason:
            case "timeout":
                return self.failed(
                    job, handler, TimeoutError(f"stopped after {run_s:.1f} s"), run_s
                )
            case "cancel":
                error = self._reason(job, "Cancelled", "cancelled while running")
                return Finish(job, "cancelled", run_s, error=error)
            case "lost":  # The write will match no row; the reporter counts it as stale.
                return Return(job, "interrupt", run_s)
            case None:
                error = self._reason(job, "Interrupted", "the worker shut down before the end")
                return Return(job, "interrupt", run_s, error=error)
            case _:
                assert_never(reason)

    def _retry_or_dead(self, job: Job, delay_s: float, error: str, run_s: float) -> Outcome:
        if job.is_last_attempt:
            return Finish(job, job.failed_state, run_s, error=error)
        return Return(job, "retry", run_s, delay_s, error)

    def _reason(self, job: Job, kind: str, reason: object) -> str:
        # Nobody checked what the handler gave as its reason; an exception reads well, too.
        return reason_record(kind, str(reason), attempt=job.attempt, worker=self.worker)
