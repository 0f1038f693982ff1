"""A handler: a coroutine function under a kind, with its payload type and its rules."""

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, get_type_hints

import msgspec
import msgspec.inspect

from chronos_runtime.backoff import Backoff, Exponential
from chronos_runtime.checks import (
    checked_max_attempts,
    checked_name,
    checked_priority,
    checked_timeout,
)
from chronos_runtime.errors import InputError
from chronos_runtime.job import MAX_ATTEMPTS_DEFAULT, PRIORITY_DEFAULT, TOPIC_DEFAULT, Job

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)

HandlerFunction = Callable[[Job, Any], Awaitable[object]]


class Handler(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about one kind of job."""

    kind: str
    function: HandlerFunction
    payload_type: Any
    decode: Callable[[str | bytes], Any]
    topic: str = TOPIC_DEFAULT
    priority: int = PRIORITY_DEFAULT
    max_attempts: int = MAX_ATTEMPTS_DEFAULT
    timeout_s: float | None = None
    backoff: Backoff = Exponential()
    supervisor: str | None = None
    """Who decides after a failed attempt; None: the queue, by the backoff."""
    is_processor: bool = False
    """Its function takes a task and a message; it stops by itself when its time is over, because it
    has something to do after that."""

    @classmethod
    def of(cls, function: HandlerFunction, kind: str, **options: Any) -> "Handler":
        """The handler of a coroutine function, checked."""
        name = getattr(function, "__qualname__", repr(function))
        if not inspect.iscoroutinefunction(function):
            raise InputError(f"handler {name} of {kind!r} must be an `async def` function")
        handler = cls(
            kind=checked_name(kind, "kind"),
            function=function,
            payload_type=(payload_type := _payload_type(function, kind)),
            decode=_decoder(payload_type, kind),
            **options,
        )
        checked_name(handler.topic, "topic")
        checked_priority(handler.priority)
        checked_max_attempts(handler.max_attempts)
        checked_timeout(handler.timeout_s)
        if not callable(handler.backoff):
            raise InputError(f"backoff of {kind!r} must be callable with the attempt number")
        return handler


class NoHandler(msgspec.Struct, frozen=True):
    """What goes for jobs whose handler is not known here."""

    topic: str = TOPIC_DEFAULT
    priority: int = PRIORITY_DEFAULT
    max_attempts: int = MAX_ATTEMPTS_DEFAULT
    supervisor: None = None
    decode: None = None


NO_HANDLER = NoHandler()


def _payload_type(function: HandlerFunction, kind: str) -> Any:
    signature = inspect.signature(function)
    parameters = list(signature.parameters.values())
    if [parameter.kind in _POSITIONAL for parameter in parameters] != [True, True]:
        raise InputError(
            f"handler of {kind!r} must take exactly two parameters, `job` and `payload`"
            f" (a processor: `task` and `message`); it takes {signature}"
        )
    try:
        hints = get_type_hints(function)
    except (NameError, AttributeError, SyntaxError, TypeError) as error:
        raise InputError(
            f"handler of {kind!r}: its annotations cannot be read ({error});"
            " define the payload type at module level"
        ) from error
    return hints.get(parameters[1].name, Any)


def _decoder(payload_type: Any, kind: str) -> Callable[[str | bytes], Any]:
    trouble = f"payload type of {kind!r} is not one msgspec knows"
    try:
        decoder = msgspec.json.Decoder(payload_type)
        # A decoder is made for any class, and then refuses whatever there is to decode.
        # Any class but `object`, which everything is.
        is_custom = isinstance(msgspec.inspect.type_info(payload_type), msgspec.inspect.CustomType)
        if is_custom and payload_type is not object:
            raise InputError(f"{trouble}: {payload_type}; use a msgspec struct or a dataclass")
    except (NameError, TypeError) as error:
        raise InputError(f"{trouble}: {error}") from error
    return decoder.decode
