"""The floor of the latency: the very enqueue and claim statements and the notification between.

On bare asyncpg, with a connection each for the producer, the listener and the claims, as the
runtime has them: what a job waits beyond this is the runtime's own doing.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import asyncpg

from chronos_runtime.config import DatabaseConfig
from chronos_runtime.ids import Worker, new_job_id
from chronos_runtime.store.connect import connect
from chronos_runtime.store.sql import query

_TOPIC, _KIND, _ROOM = "default", "noop", 100


async def start_jobs(
    config: DatabaseConfig, jobs: int, gap: Callable[[], Awaitable[None]]
) -> list[float]:
    """One job after another; the seconds from sending each to holding its lease."""
    worker, heard, waits_s = Worker(), asyncio.Event(), list[float]()
    async with AsyncExitStack() as stack:
        producer, listener, claims = [await _open(config, stack) for _ in range(3)]
        await listener.add_listener("chronos_ready", lambda *_: heard.set())
        await claims.execute(query("mark_idle"), worker.id, [_TOPIC])
        for _ in range(jobs):
            await gap()
            heard.clear()
            started = time.perf_counter()
            enqueued = asyncio.ensure_future(_enqueue(producer))
            await heard.wait()  # Which comes before the producer's own answer, more often than not.
            rows = await _claim(claims, worker)
            waits_s.append(time.perf_counter() - started)
            await enqueued
            assert len(rows) == 1
            await claims.execute("delete from chronos.jobs; delete from chronos.claims")
    return waits_s


async def _open(config: DatabaseConfig, stack: AsyncExitStack) -> asyncpg.Connection:
    connection = await connect(config)
    stack.push_async_callback(connection.close)
    return connection


async def _enqueue(connection: asyncpg.Connection) -> None:
    job = (new_job_id(), _TOPIC, _KIND, 5, '{"n":1}', 5, None, None)
    await connection.execute(query("enqueue_plain_job"), *job)


async def _claim(connection: asyncpg.Connection, worker: Worker) -> list[asyncpg.Record]:
    token, frontiers = worker.next_token(), [0] * 10
    return await connection.fetch(
        query("claim_jobs"), token, 30.0, [_TOPIC], [_ROOM], frontiers, [_KIND], _ROOM, []
    )
