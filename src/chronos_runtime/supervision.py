"""What a supervisor sees of a failed attempt, and what it may decide.

A supervised task is completed whatever happens: a failed attempt ends it as `failed`, and the queue
never runs it again (but after a crash, which is no attempt of its own). Its supervisor sees the
failure and decides: another attempt, which is a new task, or none, or people.
"""

import inspect
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from chronos_runtime.errors import InputError


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A failed attempt, as its supervisor sees it.

    >>> now = datetime(2027, 1, 15, 3)
    >>> failure = Failure(
    ...     id=UUID(int=1), kind="mail", topic="default", payload={"to": "ada"},
    ...     error={"type": "TimeoutError"}, errors=[{"type": "TimeoutError"}], attempt=1, run=1,
    ...     supervisor="mail", lineage_id=UUID(int=1), retry_of=None, enqueued_at=now,
    ...     finished_at=now,
    ... )
    >>> (failure.attempt, failure.error["type"])
    (1, 'TimeoutError')
    """

    id: UUID
    """The task that failed."""
    kind: str
    topic: str
    payload: Any
    error: dict[str, Any]
    """Why, as `jobs show` tells it: type, message, traceback; empty if nobody said."""
    errors: list[dict[str, Any]]
    """With those of runs that a crash or a shutdown ended before."""
    attempt: int
    """Which attempt of its line this was, from 1."""
    run: int
    """How often a worker had begun with this task."""
    supervisor: str
    lineage_id: UUID
    """The first task of the line; the same in all its attempts."""
    retry_of: UUID | None
    """The attempt before."""
    enqueued_at: datetime
    finished_at: datetime


class NewAttempt(
    msgspec.Struct, frozen=True, tag_field="decision", tag="new_attempt", forbid_unknown_fields=True
):
    """Try again, as a new task linked to the failed one.

    >>> NewAttempt(delay_s=60)
    NewAttempt(delay_s=60, payload=None)
    """

    delay_s: float = 0.0
    payload: Any = None
    """None: the same as before."""


class GiveUp(
    msgspec.Struct, frozen=True, tag_field="decision", tag="give_up", forbid_unknown_fields=True
):
    """Leave it at that: the task stays failed.

    >>> GiveUp("no such mailbox")
    GiveUp(reason='no such mailbox')
    """

    reason: str = "the supervisor gave up"


class Escalate(
    msgspec.Struct, frozen=True, tag_field="decision", tag="escalate", forbid_unknown_fields=True
):
    """Let people decide: the task stands with the dead letters, as `dead`.

    >>> Escalate("the third bounce")
    Escalate(reason='the third bounce')
    """

    reason: str = "the supervisor asks for help"


Decision = NewAttempt | GiveUp | Escalate

DECISIONS = ("new_attempt", "give_up", "escalate")

SupervisorFunction = Callable[[Failure], Awaitable[Decision]]

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class SupervisorRule(msgspec.Struct, frozen=True):
    """A supervisor of an app: what decides, and how long it may take."""

    function: SupervisorFunction
    timeout_s: float | None

    @classmethod
    def of(
        cls, function: SupervisorFunction, name: str, timeout_s: float | None
    ) -> "SupervisorRule":
        """The rule of a coroutine function, checked."""
        if not inspect.iscoroutinefunction(function):
            raise InputError(f"supervisor {name!r} must be an `async def` function")
        signature = inspect.signature(function)
        if [one.kind in _POSITIONAL for one in signature.parameters.values()] != [True]:
            raise InputError(
                f"supervisor {name!r} must take exactly one parameter, `failure`;"
                f" it takes {signature}"
            )
        return cls(function, timeout_s)


def checked_decision(decision: object, supervisor: str) -> Decision:
    """`decision`, once it is one.

    >>> checked_decision(None, "mail")
    Traceback (most recent call last):
    ...
    chronos_runtime.errors.InputError: supervisor 'mail' decided None; return NewAttempt, GiveUp \
or Escalate
    """
    if isinstance(decision, NewAttempt | GiveUp | Escalate):
        return decision
    raise InputError(
        f"supervisor {supervisor!r} decided {decision!r:.200}; return NewAttempt, GiveUp or"
        " Escalate"
    )


def read_decision(payload: object, supervisor: str) -> Decision:
    """The decision in the envelope's payload of a SQL supervisor.

    >>> read_decision({"decision": "new_attempt", "delay_s": 60}, "mail").delay_s
    60.0
    >>> read_decision({"decision": "retry"}, "mail")
    Traceback (most recent call last):
    ...
    chronos_runtime.errors.InputError: supervisor 'mail' decided nothing we know: Invalid value \
'retry' - at `$.decision`; its payload must be {"decision": "new_attempt", "delay_s": …, \
"payload": …}, {"decision": "give_up", "reason": …} or {"decision": "escalate", "reason": …}
    """
    try:
        decision: Decision = msgspec.convert(payload, Decision)
    except msgspec.ValidationError as error:
        raise InputError(
            f"supervisor {supervisor!r} decided nothing we know: {error}; its payload must be"
            ' {"decision": "new_attempt", "delay_s": …, "payload": …}, {"decision": "give_up",'
            ' "reason": …} or {"decision": "escalate", "reason": …}'
        ) from error
    return decision


def word_of(decision: Decision) -> str:
    """The decision in one word, as SQL supervisors spell it.

    >>> word_of(GiveUp())
    'give_up'
    """
    return str(decision.__struct_config__.tag)
