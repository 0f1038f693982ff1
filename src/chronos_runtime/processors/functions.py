"""SQL functions as processors call them: looked up, called, and their envelope read.

A name is looked up before the transaction that calls it begins, and known for a minute. Only what
was found is remembered, so a function that was just created or allowed is found at once, and one
that was dropped or forbidden is found out by its first failure, or within the minute.
"""

import logging
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import msgspec

from chronos_runtime.errors import FunctionFailed
from chronos_runtime.function_name import FunctionName
from chronos_runtime.processor import Task
from chronos_runtime.processor_config import FunctionsConfig
from chronos_runtime.processors.envelope import Envelope, read_envelope
from chronos_runtime.store.postgres_functions import HandlerConnection, Resolved

_log = logging.getLogger(__name__)


class FunctionStore(Protocol):
    """What this asks of the database."""

    async def resolve_function(self, name: FunctionName) -> Resolved:
        """What a name stands for."""

    async def call(
        self,
        connection: HandlerConnection,
        function: Resolved,
        argument: str,
        *,
        timeout_s: float,
        task: str,
    ) -> str | None:
        """Call it; the JSON text it returned."""

    def transaction(self) -> AbstractAsyncContextManager[HandlerConnection]:
        """A transaction of its own."""


class Functions:
    """The SQL functions that tasks may call; one for a process."""

    def __init__(
        self,
        config: FunctionsConfig,
        store: FunctionStore,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config
        self._store = store
        self._clock = clock
        # Only names that were found: never more than the database has functions.
        self._known: dict[FunctionName, tuple[float, Resolved]] = {}

    async def resolve(self, name: FunctionName) -> Resolved:
        """The function of that name. Before a transaction: within one, it would need two."""
        until, function = self._known.get(name, (0.0, None))
        if function is not None and self._clock() < until:
            return function
        self._known.pop(name, None)
        until = self._clock() + self._config.resolve_s
        function = _checked(await self._store.resolve_function(name))
        self._known[name] = (until, function)
        return function

    async def call(
        self, connection: HandlerConnection, function: Resolved, argument: str, task: Task
    ) -> Envelope:
        """Call what was resolved, in the transaction of `connection`: the envelope it returned."""
        try:
            returned = await self._store.call(
                connection,
                function,
                argument,
                timeout_s=function.timeout_s or self._config.timeout_s,
                task=msgspec.json.encode(task).decode(),
            )
            return read_envelope(function.name, returned)
        except FunctionFailed as failure:
            self._known.pop(function.name, None)  # Perhaps it is gone, or another one is there.
            _log.warning(
                "SQL function failed (%s): %s",
                failure.outcome,
                function.name,
                extra={"job": str(task.id), "kind": task.kind, "attempt": task.attempt},
            )
            raise

    async def demand(
        self, connection: HandlerConnection, function: Resolved, argument: str, task: Task
    ) -> Envelope:
        """The same, but whatever is no success is raised."""
        envelope = await self.call(connection, function, argument, task)
        if not envelope.is_success:
            raise envelope.failure(function.name)
        return envelope

    async def demand_alone(self, name: FunctionName, argument: str, task: Task) -> Envelope:
        """The same in a transaction of its own, which is kept if the function succeeded."""
        function = await self.resolve(name)
        async with self._store.transaction() as connection:
            return await self.demand(connection, function, argument, task)


def _checked(found: Resolved) -> Resolved:
    """What was found, once a task may call it. Each refusal says what would mend it."""
    name = found.name
    if not found.is_allowed:
        raise FunctionFailed(
            f"{name}: tasks may not call it; allow it with `chronos-runtime functions allow"
            f" {name}`, or by a row in chronos.allowed_functions",
            outcome="refused",
        )
    if found.oid is None:
        others = "; ".join(f"{name}{signature}" for signature in found.others)
        there = f"there is {others}" if others else "nothing of that name is there"
        raise FunctionFailed(
            f"{name}: {there}; create function {name}(jsonb) returns jsonb", outcome="refused"
        )
    return found
