"""The floor of the latency: the very statements that hand a job over, and the word of it between.

On bare asyncpg, with a connection each for the producer, the listener and the taker, as the
runtime has them: what a job waits beyond this is the runtime's own doing.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from uuid import UUID

import asyncpg

from chronos_runtime.config import DatabaseConfig
from chronos_runtime.ids import Worker, new_job_id
from chronos_runtime.store.connect import connect
from chronos_runtime.store.listen import HANDED_CHANNEL
from chronos_runtime.store.sql import query

_TOPIC, _KIND, _PRESENCE, _LEASE_S = "default", "noop", 1, 30.0


async def start_jobs(
    config: DatabaseConfig, jobs: int, gap: Callable[[], Awaitable[None]]
) -> list[float]:
    """One job after another; the seconds from sending each to holding it."""
    worker, heard, waits_s = Worker(), asyncio.Event(), list[float]()
    async with AsyncExitStack() as stack:
        producer, listener, taker = [await _open(config, stack) for _ in range(3)]
        await listener.execute("select pg_advisory_lock($1)", _PRESENCE)
        await listener.add_listener(f"{HANDED_CHANNEL}_{_PRESENCE}", lambda *_: heard.set())
        await taker.execute(query("mark_idle"), worker.id, [_TOPIC])
        for _ in range(jobs):
            token = worker.next_token()
            await _offer(taker, worker, token)
            await gap()
            heard.clear()
            id, started = new_job_id(), time.perf_counter()
            enqueued = asyncio.ensure_future(_enqueue(producer, id))
            await heard.wait()  # Which comes before the producer's own answer, more often than not.
            rows = await taker.fetch(query("take_job"), id, token, _LEASE_S)
            waits_s.append(time.perf_counter() - started)
            await enqueued
            assert len(rows) == 1
            await taker.execute("delete from chronos.jobs; delete from chronos.claims")
    return waits_s


async def _open(config: DatabaseConfig, stack: AsyncExitStack) -> asyncpg.Connection:
    connection = await connect(config)
    stack.push_async_callback(connection.close)
    return connection


async def _offer(connection: asyncpg.Connection, worker: Worker, token: UUID) -> None:
    offered = (_PRESENCE, _LEASE_S, [_TOPIC], [_KIND])
    await connection.execute(query("place_offer"), worker.id, token, *offered, [])


async def _enqueue(connection: asyncpg.Connection, id: UUID) -> None:
    job = (id, _TOPIC, _KIND, 5, '{"n":1}', 5, None, None)
    await connection.execute(query("enqueue_plain_job"), *job)
