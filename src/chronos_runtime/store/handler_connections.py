"""Connections that handlers speak through: a pool of their own, and a clean session each time.

They are not those of our statements: a handler may hold one for as long as it likes, and the
server plans for it as it is set to plan. What a handler leaves in a session does not reach the
next one, but for what lives in the driver (`set_type_codec`) and statements by SQL's `prepare`.
"""

import functools
from contextlib import suppress

import anyio
import asyncpg
from asyncpg.pool import PoolConnectionProxy

from chronos_runtime.config import DatabaseConfig
from chronos_runtime.store.connect import connect_for_handlers
from chronos_runtime.store.faults import FAULTS

_GOODBYE_S = 5.0  # How long a reset, or the close of all, may take before it is cut short.

# What asyncpg does, and the two things it leaves: a role, which `reset all` does not touch, and
# temporary tables. `discard all` would take the driver's prepared statements along.
_RESET = """
select pg_advisory_unlock_all(); close all; unlisten *; set session authorization default;
reset all; discard temp; discard sequences
"""


class HandlerConnections:
    """Connections for the transactions of handlers, opened when they are needed."""

    def __init__(self, config: DatabaseConfig) -> None:
        self._config = config
        self._pool: asyncpg.Pool | None = None
        self.size = config.transaction_connections

    @property
    def used(self) -> int:
        """How many transactions are open right now."""
        return self._pool.get_size() - self._pool.get_idle_size() if self._pool else 0

    @property
    def idle(self) -> int:
        """How many open connections wait for one."""
        return self._pool.get_idle_size() if self._pool else 0

    async def acquire(self) -> PoolConnectionProxy:
        """A connection; waits, as long as the handler may, for one to come free."""
        if self._pool is None:
            self._pool = asyncpg.create_pool(
                self._config.dsn,
                min_size=0,
                max_size=self.size,
                connect=functools.partial(_connect, self._config),
                reset=_leave_as_it_is if self._config.pgbouncer else _reset,
            )
        await self._pool  # Opens nothing; the first to come makes it ready for the others.
        return await self._pool.acquire()

    async def release(self, connection: PoolConnectionProxy) -> None:
        """Give it back, clean; one that is broken, or of a pool that was closed, is gone."""
        try:
            if self._pool is not None:
                await self._pool.release(connection, timeout=_GOODBYE_S)
        except FAULTS:
            pass  # What cannot be reset the pool has terminated.

    def terminate(self, connection: PoolConnectionProxy) -> None:
        """End it as it is; one that broke has left the pool by itself, and cannot be asked."""
        with suppress(asyncpg.InterfaceError):
            connection.terminate()

    async def close(self) -> None:
        """Close them all; a later transaction opens new ones."""
        if self._pool is not None:
            pool, self._pool = self._pool, None
            with anyio.move_on_after(_GOODBYE_S, shield=True):
                await pool.close()
            pool.terminate()


async def _connect(config: DatabaseConfig, *_: object, **__: object) -> asyncpg.Connection:
    return await connect_for_handlers(config)


async def _reset(connection: asyncpg.Connection) -> None:
    await connection.execute(_RESET)


async def _leave_as_it_is(connection: asyncpg.Connection) -> None:
    """Behind a pooler the session is not ours: this would reach somebody else's."""
