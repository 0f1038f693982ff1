"""The floor: the very claim and finish statements, driven by bare asyncpg on two connections.

No actors, no registry, no handlers, no metrics: what is above this is the runtime's own cost.
"""

import time
from collections.abc import Sequence
from uuid import UUID

import anyio
import asyncpg
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from chronos_runtime.config import DatabaseConfig
from chronos_runtime.ids import Worker
from chronos_runtime.store.connect import connect
from chronos_runtime.store.sql import query

BATCH = 4_000  # The same as claimer.batch_max and reporter.batch_max.

Batch = tuple[UUID, Sequence[asyncpg.Record]]


async def drain(config: DatabaseConfig, jobs: int, kind: str) -> float:
    """Claim and finish `jobs` jobs; jobs per second."""
    claims, finishes = await connect(config), await connect(config)
    send, receive = anyio.create_memory_object_stream[Batch](2)
    over: list[UUID] = []
    started = time.perf_counter()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_claim, claims, jobs, kind, send, over)
        tasks.start_soon(_finish, finishes, receive, over)
    seconds = time.perf_counter() - started
    await claims.close()
    await finishes.close()
    return jobs / seconds


async def _claim(
    connection: asyncpg.Connection,
    jobs: int,
    kind: str,
    send: MemoryObjectSendStream[Batch],
    over: list[UUID],
) -> None:
    worker, frontiers, claimed = Worker(), [0] * 10, 0
    async with send:
        while claimed < jobs:
            token, room = worker.next_token(), min(BATCH, jobs - claimed)
            forget, over[:] = list(over), []
            wanted = (["default"], [room], frontiers, [kind], room)
            rows = await connection.fetch(query("claim_jobs"), token, 30.0, *wanted, forget, None)
            frontiers[5] = max(row["seq"] for row in rows)
            claimed += len(rows)
            await send.send((token, rows))


async def _finish(
    connection: asyncpg.Connection, receive: MemoryObjectReceiveStream[Batch], over: list[UUID]
) -> None:
    async with receive:
        async for token, rows in receive:
            ids, run_times = sorted(row["id"] for row in rows), [0.0] * len(rows)
            ended = (run_times, None, None, None, False)
            await connection.fetch(query("finish_jobs"), ids, [token], [1], *ended)
            over.append(token)
