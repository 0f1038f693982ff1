"""The fenced transaction on Postgres: a handler's own SQL, then the end of its job, one commit.

Its connections are not those of the statements: a handler may hold one for as long as it likes,
what it leaves in the session is reset, and the server plans as it is set to plan. Nothing of the
queue is locked before the end, so heartbeats go on. A session that stands idle in its transaction
is ended by the server, so that the row locks of a frozen process do not outlive its lease for long.
"""

import functools
from types import TracebackType
from typing import cast

import anyio
import anyio.lowlevel
import asyncpg
import msgspec
from asyncpg.pool import PoolConnectionProxy

from chronos_runtime.config import DatabaseConfig
from chronos_runtime.errors import ClaimLost, StoreUnavailable
from chronos_runtime.job import Finish, Job, Outcome
from chronos_runtime.slot import Ending
from chronos_runtime.store import Claimed
from chronos_runtime.store.connect import connect_for_handlers
from chronos_runtime.store.faults import FAULTS, translate
from chronos_runtime.store.report import Fetch, Verify, finish_jobs, return_jobs
from chronos_runtime.store.sql import query
from chronos_runtime.transaction import Transaction

_ROLL_BACK_S = 5.0  # How long that may take before the connection is terminated.


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
            )
        await self._pool  # Opens nothing; the first to come makes it ready for the others.
        return await self._pool.acquire()

    async def release(self, connection: PoolConnectionProxy) -> None:
        """Give it back, reset; or closed, if it was terminated."""
        assert self._pool is not None
        await self._pool.release(connection, timeout=_ROLL_BACK_S)

    async def close(self) -> None:
        """Close them all; a later transaction opens new ones."""
        if self._pool is not None:
            pool, self._pool = self._pool, None
            with anyio.move_on_after(_ROLL_BACK_S, shield=True):
                await pool.close()
            pool.terminate()


async def _connect(config: DatabaseConfig, *_: object, **__: object) -> asyncpg.Connection:
    return await connect_for_handlers(config)


class FencedTransaction(Transaction):
    """One transaction of one handler; see `Transaction`."""

    def __init__(
        self,
        connections: HandlerConnections,
        job: Job,
        ending: Ending,
        *,
        verify: Verify,
        deadline_s: float,
    ) -> None:
        super().__init__()
        self._connections = connections
        self._job = job
        self._ending = ending
        self._verify = verify
        self._deadline_s = deadline_s
        self._is_committing = False

    async def __aenter__(self) -> asyncpg.Connection:
        try:
            self._connection = await self._connections.acquire()
        except FAULTS as failure:
            raise translate(failure, "transaction") from failure
        try:
            self._begun = self._connection.transaction()
            await self._begun.start()
        except BaseException as failure:
            self._connection.terminate()
            await self._let_go()
            if isinstance(failure, FAULTS):
                raise translate(failure, "transaction") from failure
            raise
        return cast("asyncpg.Connection", self._connection)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        written: Outcome | None = None
        try:
            if error is None:
                await anyio.lowlevel.checkpoint_if_cancelled()  # The last moment to stop it.
                written = await self._commit(self._ending.judge(self._end))
                if written is None:
                    raise ClaimLost(
                        f"job {self._job.id}: the claim of attempt {self._job.attempt} was lost;"
                        " its transaction was rolled back"
                    )
                self._ending.note(written)
        finally:
            if written is None:
                await self._roll_back()
            await self._let_go()

    async def _commit(self, outcome: Outcome) -> Outcome | None:
        """End the job and commit, if the claim still stands; what was written."""
        written: Outcome | None = None
        try:
            with anyio.CancelScope(shield=True), anyio.fail_after(self._deadline_s):
                written = await self._write(outcome)
                if written is not None:
                    self._is_committing = True
                    await self._begun.commit()
        except FAULTS as failure:
            trouble = translate(failure, "transaction")
            self._connection.terminate()
            if not self._is_committing or not isinstance(trouble, StoreUnavailable):
                raise trouble from failure
            with anyio.CancelScope(shield=True):
                return written if await self._is_applied(trouble) else None
        return written

    async def _write(self, outcome: Outcome) -> Outcome | None:
        id = self._job.id
        fetch: Fetch = functools.partial(_fetch, self._connection)
        if isinstance(outcome, Finish):
            is_ours = id in await finish_jobs(fetch, [outcome])
        else:
            state = (await return_jobs(fetch, [outcome])).get(id)
            is_ours = state is not None
            if state == "cancelled":  # As somebody had asked: it was not given back but ended.
                outcome = Finish(self._job, "cancelled", outcome.run_s)
        return msgspec.structs.replace(outcome, is_written=True) if is_ours else None

    async def _is_applied(self, trouble: StoreUnavailable) -> bool:
        """The reply to the commit was lost: whether it was applied, by a look of its own."""
        claim = Claimed(self._job.id, self._job.lease_token, self._job.attempt)
        check = (await self._verify([claim], self._ending.worker))[self._job.id]
        if check.verdict == "owned":
            raise trouble
        return check.verdict == "applied"

    async def _roll_back(self) -> None:
        try:
            with anyio.CancelScope(shield=True), anyio.fail_after(_ROLL_BACK_S):
                if not self._connection.is_closed() and not self._is_committing:
                    await self._begun.rollback()
        except FAULTS:
            self._connection.terminate()

    async def _let_go(self) -> None:
        try:
            with anyio.CancelScope(shield=True):
                await self._connections.release(self._connection)
        except FAULTS:
            self._connection.terminate()


async def _fetch(
    connection: PoolConnectionProxy, statement: str, *arguments: object
) -> list[asyncpg.Record]:
    return await connection.fetch(query(statement), *arguments)
