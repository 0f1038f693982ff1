"""One run of a processor: how far it came, and what there is to tell of it."""

from typing import Any, Literal

import msgspec

from chronos_runtime.errors import PermanentFailure, ProcessorFailure, TemporaryFailure
from chronos_runtime.failure import MESSAGE_MAX_CHARS, clean_text, describe
from chronos_runtime.job import Cancel, Discard, Retry, Snooze
from chronos_runtime.payload import PAYLOAD_MAX_BYTES, encode_result
from chronos_runtime.processor import Task
from chronos_runtime.processors.task_payload import TaskPayload

Stage = Literal["before_handler", "message", "processor", "success_handler"]

_DECISIONS: dict[type, str] = {
    Snooze: "snoozed",
    Retry: "retried",
    Cancel: "cancelled",
    Discard: "discarded",
}


class Run(msgspec.Struct):
    """What is known of a run by now."""

    task: Task
    payload: TaskPayload
    stage: Stage = "before_handler"
    message: dict[str, Any] | None = None
    """What the provider is told, once that is known."""
    answer: object = None
    """What it answered; or a decision."""
    error: BaseException | None = None
    """What the run failed with."""

    @property
    def outcome(self) -> str:
        """The word that the metric counts it under."""
        if isinstance(self.error, ProcessorFailure):
            return self.error.outcome
        if isinstance(self.error, TimeoutError):
            return "timeout"
        if self.error is not None:
            return "failed"
        return _DECISIONS.get(type(self.answer), "succeeded")

    @property
    def end(self) -> object:
        """What the job ends with: judged as if a handler had returned, or raised, it."""
        return self.answer if self.error is None else self.error

    @property
    def is_success(self) -> bool:
        """Whether the provider did it."""
        return self.error is None and type(self.answer) not in _DECISIONS

    def document(self) -> str:
        """What a SQL function is told of it, as JSON that Postgres can hold."""
        told: dict[str, object] = {"task": self.task, "payload": self.payload.whole}
        if self.message is not None:
            told["message"] = self.message
        if (self.is_success and self.stage == "processor") or self.stage == "success_handler":
            told["answer"] = _storable(self.answer)
        if not self.is_success:
            told["error"] = self._trouble()
        return msgspec.json.encode(told).decode()

    def _trouble(self) -> dict[str, object]:
        end = self.end
        if isinstance(end, BaseException):
            message = describe(end)
        else:
            message = clean_text(str(getattr(end, "reason", "")), MESSAGE_MAX_CHARS)
        return {
            "type": type(end).__qualname__,
            "message": message,
            "outcome": self.outcome,
            "is_permanent": isinstance(end, PermanentFailure | Cancel | Discard),
            "stage": self.stage,
        }

    def also(self, trouble: ProcessorFailure) -> object:
        """What the job ends with where its `error_handler` failed too: it names both."""
        end = self.end
        if isinstance(end, Retry | Cancel | Discard):
            return msgspec.structs.replace(end, reason=_both(end.reason, trouble))
        assert isinstance(end, BaseException)
        text = _both(f"{type(end).__qualname__}: {describe(end)}", trouble)
        if isinstance(end, PermanentFailure):
            return _caused(PermanentFailure(text, outcome=self.outcome), end)
        after_s = end.after_s if isinstance(end, TemporaryFailure) else None
        return _caused(TemporaryFailure(text, outcome=self.outcome, after_s=after_s), end)


def _both(first: str, trouble: ProcessorFailure) -> str:
    return f"{first}; and error_handler failed: {describe(trouble)}"


def _caused(error: BaseException, cause: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


def _storable(answer: object) -> msgspec.Raw:
    text, _ = encode_result(answer, PAYLOAD_MAX_BYTES)
    return msgspec.Raw((text or "null").encode())
