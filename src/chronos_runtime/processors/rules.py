"""From a processor to the handler of its kind: for a client to check by, for a worker to run."""

import functools
import inspect
from typing import Any, TypedDict, cast

import msgspec

from chronos_runtime.attempts import Attempts, supervisor_of
from chronos_runtime.backoff import Backoff
from chronos_runtime.handlers import Handler, HandlerFunction
from chronos_runtime.metrics import Metrics
from chronos_runtime.processor import Processor
from chronos_runtime.processors.dispatcher import Dispatcher
from chronos_runtime.processors.functions import Functions
from chronos_runtime.processors.task_payload import read_task, task_check


class ProcessorOptions(TypedDict, total=False):
    """What may be said about a processor: the same as about a handler."""

    topic: str
    priority: int
    max_attempts: int
    timeout_s: float | None
    backoff: Backoff
    attempts: Attempts
    supervisor: str | None


def processor_rules(
    processor: Processor,
    kind: str,
    *,
    attempts: Attempts | None = None,
    supervisor: str | None = None,
    **options: Any,
) -> Handler:
    """What goes for the kind of a processor, as a client knows it: what would run it does not.

    >>> from chronos_runtime import Task
    >>> async def push(task: Task, message: dict[str, str]) -> None: ...
    >>> processor_rules(push, "push", max_attempts=3).max_attempts
    3
    """
    is_function = inspect.iscoroutinefunction(processor)
    called = processor if is_function else getattr(processor, "__call__", processor)  # noqa: B004
    handler = Handler.of(cast("HandlerFunction", called), kind, **options)
    return msgspec.structs.replace(
        handler,
        function=cast("HandlerFunction", processor),
        decode=task_check(kind, handler.payload_type),
        is_processor=True,
        supervisor=supervisor_of(kind, attempts, supervisor),
    )


def running(rules: Handler, functions: Functions, metrics: Metrics) -> Handler:
    """The same as a worker runs it.

    What a row says is read less strictly than what a producer says: a message that does not fit is
    a failure that `error_handler` is told of.
    """
    dispatcher = Dispatcher(rules, functions, metrics.processors)
    metrics.processors.begin(rules.kind)
    return msgspec.structs.replace(
        rules,
        function=dispatcher.__call__,
        decode=functools.partial(read_task, rules.kind),
    )
