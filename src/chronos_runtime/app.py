"""Chronos: the registry of an application's handlers and schedules."""

from collections.abc import Callable
from typing import TypeVar, Unpack

from chronos_runtime.attempts import Attempts, checked_supervisor, supervisor_of
from chronos_runtime.backoff import Backoff, Exponential
from chronos_runtime.checks import checked_name, checked_timeout
from chronos_runtime.definitions import ScheduleOptions, define_schedule
from chronos_runtime.errors import InputError, UnknownKind
from chronos_runtime.handlers import Handler, HandlerFunction
from chronos_runtime.job import MAX_ATTEMPTS_DEFAULT, PRIORITY_DEFAULT, TOPIC_DEFAULT
from chronos_runtime.processor import Processor
from chronos_runtime.processors.builtin_rules import builtin_rules
from chronos_runtime.processors.rules import ProcessorOptions, processor_rules
from chronos_runtime.schedule import Definition
from chronos_runtime.supervision import SupervisorFunction, SupervisorRule

KIND_RESERVED = "chronos."

SUPERVISOR_TIMEOUT_S = 60.0

F = TypeVar("F", bound=HandlerFunction)
P = TypeVar("P", bound=Processor)
S = TypeVar("S", bound=SupervisorFunction)


class Chronos:
    """An application: the handlers that a worker runs and a client enqueues for, and schedules.

    Its `name` tells its schedules from those of other services on the same database.

    >>> import msgspec
    >>> from chronos_runtime import Chronos, Job
    >>> class Greeting(msgspec.Struct):
    ...     name: str
    >>> app = Chronos()
    >>> @app.handler("greet", max_attempts=3)
    ... async def greet(job: Job, payload: Greeting) -> str:
    ...     return f"Hello, {payload.name}"
    >>> sorted(app.handlers)
    ['greet']
    """

    def __init__(self, name: str | None = None) -> None:
        self.name = None if name is None else checked_name(name, "name")
        self.handlers: dict[str, Handler] = {}
        self.schedules: dict[str, Definition] = {}
        self.supervisors: dict[str, SupervisorRule] = {}

    def handler(
        self,
        kind: str,
        *,
        topic: str = TOPIC_DEFAULT,
        priority: int = PRIORITY_DEFAULT,
        max_attempts: int = MAX_ATTEMPTS_DEFAULT,
        timeout_s: float | None = None,
        backoff: Backoff = Exponential(),  # noqa: B008 - frozen
        attempts: Attempts = "retried",
        supervisor: str | None = None,
    ) -> Callable[[F], F]:
        """Register `async def handler(job, payload)` for jobs of `kind`.

        The annotation of `payload` is its type, checked by msgspec at enqueue and at run. With
        `attempts="supervised"` a failed attempt ends the job, and `supervisor` decides what comes
        of it (see `supervisor`); by default the one of the kind's own name.
        """
        _check_kind(kind)

        def register(function: F) -> F:
            self._register(
                Handler.of(
                    function,
                    kind,
                    topic=topic,
                    priority=priority,
                    max_attempts=max_attempts,
                    timeout_s=timeout_s,
                    backoff=backoff,
                    supervisor=supervisor_of(kind, attempts, supervisor),
                )
            )
            return function

        return register

    def processor(self, kind: str, **options: Unpack[ProcessorOptions]) -> Callable[[P], P]:
        """Register a processor, `async def push(task, message)`, for tasks of `kind`.

        A task may name SQL functions to run before it, and after it together with its end. The
        annotation of `message` is its type; `timeout_s` is for the processor alone.

        >>> from chronos_runtime import Chronos, Task
        >>> app = Chronos()
        >>> @app.processor("push", max_attempts=3, timeout_s=10)
        ... async def push(task: Task, message: dict[str, str]) -> str:
        ...     return f"told {message['to']}"
        """
        _check_kind(kind)

        def register(processor: P) -> P:
            self._register(processor_rules(processor, kind, **options))
            return processor

        return register

    def _register(self, handler: Handler) -> None:
        if handler.kind in self.handlers:
            raise InputError(f"kind {handler.kind!r} has a handler already")
        self.handlers[handler.kind] = handler

    def supervisor(
        self, name: str, *, timeout_s: float | None = SUPERVISOR_TIMEOUT_S
    ) -> Callable[[S], S]:
        """Register `async def decide(failure)` for failed attempts of tasks that name it.

        It may be asked again if its worker dies first; what it decides is done exactly once.

        >>> from chronos_runtime import Escalate, Failure, NewAttempt
        >>> app = Chronos()
        >>> @app.supervisor("mail")
        ... async def decide(failure: Failure) -> NewAttempt | Escalate:
        ...     if failure.attempt < 3:
        ...         return NewAttempt(delay_s=60 * failure.attempt)
        ...     return Escalate("three attempts failed")
        >>> sorted(app.supervisors)
        ['mail']
        """
        if not checked_supervisor(name):
            raise InputError("supervisor: give it a name; '' is nobody")
        checked_timeout(timeout_s)

        def register(function: S) -> S:
            if name in self.supervisors:
                raise InputError(f"supervisor: this app has one of the name {name!r} already")
            self.supervisors[name] = SupervisorRule.of(function, name, timeout_s)
            return function

        return register

    def schedule(
        self,
        name: str,
        *,
        kind: str | None = None,
        payload: object = None,
        **options: Unpack[ScheduleOptions],
    ) -> Callable[[F], F]:
        """Fire a job on schedule, from when the app next starts; stands above `@app.handler`.

        With `kind`, for the handler of that kind, registered before.

        >>> app = Chronos("shop")
        >>> @app.schedule("tidy up", cron="0 3 * * *", tz="Europe/Berlin")
        ... @app.handler("tidy")
        ... async def tidy(job, payload): ...
        >>> app.schedules["tidy up"].kind
        'tidy'
        """
        checked_name(name, "name")

        def register(function: str | HandlerFunction) -> None:
            if name in self.schedules:
                raise InputError(f"name: this app has a schedule {name!r} already")
            rules = self.find(function)
            definition = define_schedule(name, rules.kind, payload, rules, **options)
            self.schedules[name] = definition

        def decorate(function: F) -> F:
            if kind is None:
                register(function)
            return function

        if kind is not None:
            register(kind)
        return decorate

    def find(self, kind: str | HandlerFunction | Processor) -> Handler:
        """The handler of a kind, or of the very function or method registered for it."""
        if isinstance(kind, str):
            handler = self.handlers.get(kind) or builtin_rules(kind)
        else:
            matching = (one for one in self.handlers.values() if one.function == kind)
            handler = next(matching, None)
        if handler is None:
            name = kind if isinstance(kind, str) else getattr(kind, "__qualname__", repr(kind))
            known = ", ".join(sorted(self.handlers)) or "none"
            raise UnknownKind(
                f"kind: no handler for {name!r}; this app knows: {known}."
                " Register it, or enqueue through a Client without an app"
            )
        return handler

    @property
    def topics(self) -> list[str]:
        """The topics of all handlers, sorted."""
        return sorted({handler.topic for handler in self.handlers.values()})


def _check_kind(kind: str) -> None:
    # When the decorator is made: `@app.handler` without brackets would register nothing.
    checked_name(kind, "kind")
    if kind.startswith(KIND_RESERVED):
        raise InputError(f"kind: {kind!r} begins with {KIND_RESERVED!r}, as only our own do")
