"""The workloads, the same for every system: an empty database, the system's adapter, one clock.

The clock of a drain is ours, not the adapter's. The jobs are enqueued, vacuumed and
checkpointed; then a lock on the table of jobs closes a gate that lets readers through and no
claim. The worker starts, connects, and comes to wait at the gate with its first claim sent. The
clock starts when the gate opens, and stops when the database holds no job unfinished: a
completion that is batched counts when it is committed.
"""

import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager

import anyio
import asyncpg
import msgspec

from benchmarks.peers.catalogue import Peer
from benchmarks.peers.child import Child, PeerFailed, running
from benchmarks.peers.environments import Environment
from benchmarks.server import Server, empty_database

DATABASE = "peers"
SETTLE_S = 0.5  # From the first claim at the gate to its opening: the rest of the start-up.
_START_DEADLINE_S = 60.0
_FINISH_DEADLINE_S = 30.0
_POLL_S = 0.002
_SECONDS_PER_JOB_MAX = 0.05  # The slowest peer takes 3 ms a job.

_WAITING = """
select exists (
    select from pg_locks as l join pg_database as d on d.oid = l.database
    where d.datname = current_database() and l.locktype = 'relation' and not l.granted
)
"""


class Drained(msgspec.Struct, frozen=True):
    """One round of load and drain, in jobs per second."""

    enqueued_per_s: float
    drained_per_s: float


class Turn(msgspec.Struct, frozen=True):
    """A system's turn at a database of its own, and our session in it."""

    peer: Peer
    environment: Environment
    jobs: int
    database: str
    session: asyncpg.Connection

    def running(self, command: str) -> AbstractAsyncContextManager[Child]:
        """The adapter, at one of its commands."""
        environment = self.environment
        return running(environment.command(command, self.database, self.jobs), environment.folder)


async def drain(
    server: Server, environment: Environment, peer: Peer, jobs: int, *, is_pinned: bool
) -> Drained:
    """Enqueue `jobs` jobs and drain them; under an old snapshot, if it is to be pinned."""
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(empty_database(server, DATABASE))
        session = await asyncpg.connect(database)
        stack.callback(session.terminate)
        turn = Turn(peer, environment, jobs, database, session)
        load_s = await _load(turn)
        if is_pinned:
            # Not before the schema is made: some migrations wait for old snapshots to go.
            await stack.enter_async_context(_old_snapshot(database))
        drain_s = await _drain(turn)
    return Drained(enqueued_per_s=jobs / load_s, drained_per_s=jobs / drain_s)


async def latency(server: Server, environment: Environment, jobs: int) -> list[float]:
    """Milliseconds from the call of enqueue to the start of the handler, for `jobs` jobs."""
    await _settle(server)
    async with (
        empty_database(server, DATABASE) as database,
        running(environment.command("latency", database, jobs), environment.folder) as child,
    ):
        answer = await child.answer(_deadline_s(jobs))
    return msgspec.convert(answer["milliseconds"], list[float])


async def _settle(server: Server) -> None:
    """Write what the turn before left to be written: it would be flushed at another's cost."""
    connection = await asyncpg.connect(server.dsn)
    await connection.execute("checkpoint")
    await connection.close()


@asynccontextmanager
async def _old_snapshot(database: str) -> AsyncIterator[None]:
    """What a forgotten transaction holds: no row that dies from now on can be vacuumed."""
    holder = await asyncpg.connect(database)
    await holder.execute("begin isolation level repeatable read")
    await holder.execute("select 1")
    try:
        yield
    finally:
        holder.terminate()


async def _load(turn: Turn) -> float:
    """Enqueue all jobs, and leave the tables as a quiet minute would; seconds of the former."""
    async with turn.running("enqueue") as child:
        answer = await child.answer(_deadline_s(turn.jobs))
    there = await turn.session.fetchval(f"select count(*) from {turn.peer.unfinished}")
    if there != turn.jobs:
        raise PeerFailed(f"{there} of {turn.jobs} jobs were enqueued")
    # Autovacuum would come within seconds and share the cores with the measurement.
    await turn.session.execute("vacuum (analyze)")
    await turn.session.execute("checkpoint")
    return msgspec.convert(answer["seconds"], float)


async def _drain(turn: Turn) -> float:
    """Seconds from the opening of the gate to the last completion committed."""
    gate = turn.session.transaction()
    await gate.start()
    await turn.session.execute(f"lock table {turn.peer.table} in exclusive mode")
    async with turn.running("drain") as child:
        await _worker_at_gate(turn.session, child)
        await gate.rollback()
        opened = time.perf_counter()
        await child.answer(_deadline_s(turn.jobs))
        await _all_finished(turn.session, turn.peer)
        return time.perf_counter() - opened


async def _worker_at_gate(session: asyncpg.Connection, child: Child) -> None:
    try:
        with anyio.fail_after(_START_DEADLINE_S):
            while not child.has_ended and not await session.fetchval(_WAITING):
                await anyio.sleep(0.05)
    except TimeoutError:
        raise PeerFailed(f"no claim within {_START_DEADLINE_S:g} s of the start") from None
    await anyio.sleep(SETTLE_S)


async def _all_finished(session: asyncpg.Connection, peer: Peer) -> None:
    """Wait for the completions of jobs that were all handled; polling before would disturb."""
    try:
        with anyio.fail_after(_FINISH_DEADLINE_S):
            while await session.fetchval(f"select exists (select from {peer.unfinished})"):
                await anyio.sleep(_POLL_S)
    except TimeoutError:
        left = await session.fetchval(f"select count(*) from {peer.unfinished}")
        raise PeerFailed(f"{left} jobs ran and were never finished") from None


def _deadline_s(jobs: int) -> float:
    return _START_DEADLINE_S + jobs * _SECONDS_PER_JOB_MAX
