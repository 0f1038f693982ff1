"""SQL functions of others on Postgres: which may be called, what they are, and the call itself.

The program never makes a statement out of a name. The server does, from a name it has looked up,
with its own quoting (`resolve_function.sql`); the argument is bound. Each call has its own path,
timeout and, if it is given one, role, and the transaction is as it was when the call is over,
within the same statement, so that what ends the job runs as ourselves.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import TypeAlias, cast

import anyio
import asyncpg
import msgspec

from chronos_runtime.errors import FunctionFailed, StoreError
from chronos_runtime.function_name import FunctionName
from chronos_runtime.store.faults import FAULTS, is_transient, translate
from chronos_runtime.store.handler_connections import HandlerConnections
from chronos_runtime.store.lane import Lane
from chronos_runtime.store.sql import query

HandlerConnection: TypeAlias = asyncpg.Connection
"""What `job.transaction()` gives."""

_ROLL_BACK_S = 5.0  # How long that may take before the connection is terminated.


class AllowedFunction(msgspec.Struct, frozen=True):
    """A permission: of one function, or of every function of a schema."""

    schema_name: str
    function_name: str | None
    role: str | None
    timeout_s: float | None
    created_at: datetime
    functions: int
    """How many functions it covers right now."""


class Resolved(msgspec.Struct, frozen=True):
    """What the database knows under a name."""

    name: FunctionName
    is_allowed: bool
    role: str | None
    timeout_s: float | None
    oid: int | None
    """Of the one function of jsonb that returns jsonb."""
    statement: str
    search_path: str
    others: list[str]
    """The signatures of others by that name, where there is no such function."""


class PostgresFunctions:
    """The SQL functions that tasks may call, in one database."""

    def __init__(self, *, client: Lane, connections: HandlerConnections) -> None:
        self._client = client
        self._connections = connections

    async def allow_function(
        self, schema: str, name: str | None, *, role: str | None, timeout_s: float | None
    ) -> None:
        """Let tasks call a function, or with None every function of the schema."""
        await self._client.fetch("allow_function", schema, name, role, timeout_s)

    async def deny_function(self, schema: str, name: str | None) -> bool:
        """Take a permission back; whether there was one."""
        return bool(await self._client.fetch("deny_function", schema, name))

    async def list_functions(self) -> list[AllowedFunction]:
        """Every permission."""
        return [AllowedFunction(*row) for row in await self._client.fetch("list_functions")]

    async def resolve_function(self, name: FunctionName) -> Resolved:
        """What a name stands for, and whether a task may call it."""
        [row] = await self._client.fetch("resolve_function", name.schema, name.name)
        return Resolved(name, *row)

    async def call(
        self,
        connection: HandlerConnection,
        function: Resolved,
        argument: str,
        *,
        timeout_s: float,
        task: str,
    ) -> str | None:
        """Call a function in the transaction of `connection`: the JSON text it returned.

        Raises `StoreUnavailable` for what may pass, `FunctionFailed` for the rest. The transaction
        can only be rolled back then.
        """
        try:
            former = await self._enter(connection, function, timeout_s=timeout_s, task=task)
            returned = await connection.fetchval(function.statement, argument, *former)
        except asyncpg.QueryCanceledError as failure:
            raise FunctionFailed(
                f"{function.name}: {failure.args[0]}; it may take {timeout_s:g} s",
                outcome="timeout",
            ) from failure
        except FAULTS as failure:
            # Not the driver's error behind it, which would stand in the job's traceback.
            raise _translated(failure, function.name) from None
        return cast("str | None", returned)

    async def _enter(
        self, connection: HandlerConnection, function: Resolved, *, timeout_s: float, task: str
    ) -> tuple[str, str, str]:
        timeout = f"{max(timeout_s * 1_000, 1):.0f}"
        try:
            row = await connection.fetchrow(
                query("enter_function"), function.search_path, timeout, function.role, task
            )
        except asyncpg.PostgresError as failure:
            if is_transient(failure) or function.role is None:
                raise
            raise FunctionFailed(
                f"{function.name}: cannot become the role {function.role!r} ({failure.args[0]});"
                " grant it to the role the worker logs in as, or allow the function with another",
                outcome="refused",
            ) from failure
        assert row is not None
        return row["search_path"], row["statement_timeout"], row["role"]

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[HandlerConnection]:
        """A transaction that ends no job: committed at the end of the block."""
        try:
            connection = await self._connections.acquire()
        except FAULTS as failure:
            raise translate(failure, "transaction") from failure
        begun = connection.transaction()
        is_over = False
        try:
            await begun.start()
            yield cast("HandlerConnection", connection)
            with anyio.CancelScope(shield=True):
                await begun.commit()
            is_over = True
        except FAULTS as failure:
            raise translate(failure, "transaction") from failure
        finally:
            with anyio.CancelScope(shield=True):
                try:
                    with anyio.fail_after(_ROLL_BACK_S):
                        if not is_over and not connection.is_closed():
                            await begun.rollback()
                except FAULTS:
                    self._connections.terminate(connection)
                await self._connections.release(connection)


def _translated(failure: BaseException, name: FunctionName) -> StoreError | FunctionFailed:
    """What broke, in words that hold no data: details quote rows and keys."""
    if is_transient(failure) or not isinstance(failure, asyncpg.PostgresError):
        return translate(failure, f"call of {name}")
    return FunctionFailed(
        f"{name}: {type(failure).__name__}: {failure.args[0]} (SQLSTATE {failure.sqlstate})",
        outcome="error",
    )
