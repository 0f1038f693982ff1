"""A task as it is enqueued: a JSON object that may name SQL functions, and else is the message.

Of a task's payload the worker reads the names of three functions, all optional, and nothing more:

- `before_handler` makes the message out of the task; without it, the rest of the payload is it;
- `success_handler` records what the provider answered, `error_handler` that it failed.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from chronos_runtime.errors import InputError, PayloadError
from chronos_runtime.function_name import FunctionName

HOOKS = ("before_handler", "success_handler", "error_handler")

T = TypeVar("T")


class TaskPayload(msgspec.Struct, frozen=True, kw_only=True):
    """What a task says.

    >>> read_task("push", '{"to": "ada", "success_handler": "shop.sent"}').message
    {'to': 'ada'}
    """

    before_handler: FunctionName | None
    success_handler: FunctionName | None
    error_handler: FunctionName | None
    message: dict[str, Any]
    """What the provider is told, unless `before_handler` says it."""
    whole: msgspec.Raw
    """The payload byte for byte, for the SQL functions: a number stays as it was written."""


def read_task(kind: str, data: str | bytes) -> TaskPayload:
    """The task in a payload; of the message only that it is an object.

    >>> read_task("push", '{"success_handler": "sent"}')  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    chronos_runtime.errors.PayloadError: payload of 'push': success_handler: 'sent' is no ...
    """
    message = msgspec.json.decode(data)
    if not isinstance(message, dict):
        raise PayloadError(f"payload of {kind!r}: must be a JSON object, what a task says")
    try:
        names = {hook: _name_in(message, hook) for hook in HOOKS}
    except InputError as error:
        raise PayloadError(f"payload of {kind!r}: {error}") from error
    whole = data.encode() if isinstance(data, str) else data
    return TaskPayload(message=message, whole=msgspec.Raw(whole), **names)


def _name_in(message: dict[str, Any], hook: str) -> FunctionName | None:
    name = message.pop(hook, None)
    return None if name is None else FunctionName.of(name, hook)


def read_message(message: dict[str, Any], message_type: Callable[..., T] | Any) -> T:
    """The message as the processor takes it. Raises `msgspec.ValidationError`."""
    converted: T = msgspec.convert(message, message_type, str_keys=True)
    return converted


def task_check(kind: str, message_type: Any) -> Callable[[str | bytes], TaskPayload]:
    """How a producer's payload is checked: the message too, where it is known by then.

    >>> class Push(msgspec.Struct):
    ...     to: str
    >>> check = task_check("push", Push)
    >>> check('{"before_handler": "shop.push"}').message
    {}
    >>> check('{"too": "ada"}')
    Traceback (most recent call last):
    ...
    chronos_runtime.errors.PayloadError: payload of 'push': Object missing required field `to`
    """

    def check(data: str | bytes) -> TaskPayload:
        payload = read_task(kind, data)
        if payload.before_handler is None:
            try:
                read_message(payload.message, message_type)
            except msgspec.ValidationError as error:
                raise PayloadError(f"payload of {kind!r}: {error}") from error
        return payload

    return check
