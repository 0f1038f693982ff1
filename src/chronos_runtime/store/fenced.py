"""The fenced transaction on Postgres: a handler's own SQL, then the end of its job, one commit.

Nothing of the queue is locked before the end, so heartbeats go on. A session that stands idle in
its transaction is ended by the server, so that the row locks of a frozen process do not outlive
its lease for long.

Whatever cancels the handler, its end is one step of a task of its own, which the handler waits
for: asyncio's cancellation knows no shields, and half a commit is none that anybody knows of.
"""

import asyncio
import functools
import time
from collections.abc import Awaitable, Callable, Coroutine
from types import TracebackType
from typing import Any, TypeVar, cast

import anyio
import anyio.lowlevel
import asyncpg
import msgspec

from chronos_runtime.config import DatabaseConfig
from chronos_runtime.errors import ClaimLost, InputError, StoreError, StoreUnavailable
from chronos_runtime.job import Finish, Job, Outcome
from chronos_runtime.slot import Ending
from chronos_runtime.store import Claimed
from chronos_runtime.store.connect import settings_of_ours
from chronos_runtime.store.faults import FAULTS, translate
from chronos_runtime.store.handler_connections import HandlerConnections
from chronos_runtime.store.lane import Observe
from chronos_runtime.store.report import Verify, finish_jobs, return_jobs
from chronos_runtime.store.sql import query
from chronos_runtime.transaction import Transaction

T = TypeVar("T")

_ROLL_BACK_S = 5.0  # How long that may take before the connection is terminated.
_AGAIN_S = 0.2  # Between two tries to reach a server that restarts.


class FencedTransaction(Transaction):
    """One transaction of one handler; see `Transaction`."""

    def __init__(
        self,
        connections: HandlerConnections,
        config: DatabaseConfig,
        job: Job,
        ending: Ending,
        *,
        verify: Verify,
        observe: Observe,
    ) -> None:
        super().__init__()
        self._connections = connections
        self._config = config
        self._job = job
        self._ending = ending
        self._verify = verify
        self._observe = observe
        self._is_entered = False

    async def __aenter__(self) -> asyncpg.Connection:
        if self._is_entered:
            raise InputError("job.transaction(): is entered once; ask the job for another")
        self._is_entered = True
        await self._patiently(self._begin)
        return cast("asyncpg.Connection", self._connection)

    async def _begin(self) -> None:
        try:
            self._connection = await self._connections.acquire()
        except FAULTS as failure:
            raise translate(failure, "transaction") from failure
        try:
            self._begun = self._connection.transaction(isolation="read_committed")
            await self._begun.start()
            if self._config.pgbouncer:  # Elsewhere the session says so from its start.
                idle_ms = self._config.transaction_idle_s * 1000
                await self._connection.execute(
                    f"set local idle_in_transaction_session_timeout = {idle_ms:.0f}"
                )
        except BaseException as failure:
            self._connections.terminate(self._connection)
            await self._connections.release(self._connection)
            if isinstance(failure, FAULTS):
                raise translate(failure, "transaction") from failure
            raise

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        commits = False
        try:
            if error is None:
                await anyio.lowlevel.checkpoint_if_cancelled()  # The last moment to stop it.
                commits = True
        finally:
            await _carry_through(self._leave(commits=commits))

    async def _leave(self, *, commits: bool) -> None:
        started = time.monotonic()
        is_written = False
        try:
            if commits:
                written = await self._commit(self._ending.judge(self._end))
                is_written = True
                self._ending.note(written)
        finally:
            if not is_written:
                await self._roll_back()
            if commits:
                self._observe("end_transaction", time.monotonic() - started, is_written)
            await self._connections.release(self._connection)

    async def _commit(self, outcome: Outcome) -> Outcome:
        """End the job and commit, if the claim still stands; what was written."""
        written: Outcome | None = None
        try:
            with anyio.fail_after(self._config.statement_s):
                written = await self._write(outcome)
                await self._begun.commit()
        except FAULTS as failure:
            trouble = translate(failure, "transaction")
            self._connections.terminate(self._connection)
            is_doubtful = written is not None and isinstance(trouble, StoreUnavailable)
            if not is_doubtful or not await self._is_applied():
                raise trouble from failure
        assert written is not None
        return written

    async def _write(self, outcome: Outcome) -> Outcome:
        await self._prepare()
        fetch = functools.partial(_fetch, self._connection)
        id = self._job.id
        if isinstance(outcome, Finish):
            is_ours = id in await finish_jobs(fetch, [outcome])
        else:
            state = (await return_jobs(fetch, [outcome])).get(id)
            is_ours = state is not None
            if state == "cancelled":  # As somebody had asked: it was not given back but ended.
                outcome = Finish(self._job, "cancelled", outcome.run_s)
        if not is_ours:
            raise ClaimLost(
                f"job {id}: the claim of attempt {self._job.attempt} was lost; its transaction"
                " was rolled back"
            )
        return msgspec.structs.replace(outcome, is_written=True)

    async def _prepare(self) -> None:
        """Let the end be written by our role and planned as ours are, whatever was set before."""
        try:
            await self._connection.execute(settings_of_ours(self._config))
        except asyncpg.InFailedSQLTransactionError as failure:
            raise StoreError(
                "job.transaction(): a statement in it had failed, and after that Postgres commits"
                " nothing; let the error pass, or put what may fail into `connection.transaction()`"
            ) from failure
        if not self._connection.is_in_transaction():
            raise InputError(
                "job.transaction(): SQL of the handler has ended it; leave that to the block"
            )

    async def _is_applied(self) -> bool:
        """The reply to the commit was lost: whether it was applied, by a look of its own.

        Not applied may mean not yet: who tries again is fenced, and so is the reporter.
        """
        claim = Claimed(self._job.id, self._job.lease_token, self._job.attempt)
        checks = await self._patiently(lambda: self._verify([claim], self._ending.worker))
        return checks[self._job.id].verdict == "applied"

    async def _patiently(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Ask until the server answers; one that restarts is there again within seconds."""
        gives_up_at = time.monotonic() + self._config.statement_s
        while True:
            try:
                return await ask()
            except StoreUnavailable:
                if time.monotonic() > gives_up_at:
                    raise
            await anyio.sleep(_AGAIN_S)

    async def _roll_back(self) -> None:
        try:
            with anyio.fail_after(_ROLL_BACK_S):
                await self._begun.rollback()
        except FAULTS:
            self._connections.terminate(self._connection)


async def _fetch(
    connection: asyncpg.pool.PoolConnectionProxy, statement: str, *arguments: object
) -> list[asyncpg.Record]:
    return await connection.fetch(query(statement), *arguments)


async def _carry_through(coroutine: Coroutine[Any, Any, None]) -> None:
    """Wait until it is done, whatever is cancelled meanwhile; then let the cancellation come."""
    step = asyncio.ensure_future(coroutine)
    cancellation: asyncio.CancelledError | None = None
    with anyio.CancelScope(shield=True):
        while not step.done():
            try:
                await asyncio.wait([step])
            except asyncio.CancelledError as error:
                cancellation = error
    failure = step.exception()
    if cancellation is not None:
        raise cancellation from failure
    if failure is not None:
        raise failure
