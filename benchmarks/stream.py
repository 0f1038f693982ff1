"""A steady stream of jobs from this process to a worker process, at any rate that is asked for.

An open loop: a batch goes out at every tick, whatever became of those before, and the wait of a
job counts from the tick at which its batch was due, so a stall counts for every job it held up.
"""

import time
from collections.abc import Callable, Sequence

import anyio
import asyncpg

from benchmarks.round import DEADLINE_S
from benchmarks.stream_app import NOOP, SAMPLED
from chronos_runtime import Client, NewJob
from chronos_runtime.config import DatabaseConfig
from chronos_runtime.job import TOPIC_DEFAULT

TICK_S = 0.01
_BATCH = 50  # What a tick sends at 5,000 jobs/s.
_LOOK_S = 0.02

Make = Callable[[float, int], list[NewJob]]
"""Makes the jobs of a tick: when it was due, by the monotonic clock, and how many."""

_WAITS = """
    select (payload ->> 'due_s')::double precision as due_s,
        (result #>> '{}')::double precision as wait_s
    from chronos.job_history
    where kind = $1 and state = 'succeeded'
    order by 1
"""


async def capacity(
    config: DatabaseConfig, seconds: float, *, topics: Sequence[str] = (TOPIC_DEFAULT,)
) -> float:
    """Jobs/s that one producer enqueues and one worker, already up, runs at the same time.

    As many as the producer can send in `seconds`, in batches as small as a tick's, over the time
    until the last of them has run.
    """
    sent, started = 0, time.monotonic()
    async with Client.connect(config.dsn) as client:
        while time.monotonic() < started + seconds:
            await client.enqueue_many(
                [
                    client.job(NOOP, {}, topic=topics[number % len(topics)])
                    for number in range(_BATCH)
                ]
            )
            sent += _BATCH
    await is_drained(config)
    return sent / (time.monotonic() - started)


async def offer(client: Client, make: Make, *, jobs_per_s: float, seconds: float) -> int:
    """Send jobs at that rate for so long; how many."""
    sent, started = 0, time.monotonic()
    for tick in range(round(seconds / TICK_S)):
        due_s = started + tick * TICK_S
        await anyio.sleep(max(0.0, due_s - time.monotonic()))
        count = round((tick + 1) * TICK_S * jobs_per_s) - sent
        await client.enqueue_many(make(due_s, count))
        sent += count
    return sent


def with_sample(client: Client) -> Make:
    """Jobs that do nothing, the first of each tick telling how long it waited."""

    def make(due_s: float, count: int) -> list[NewJob]:
        first = client.job(SAMPLED, {"due_s": due_s})
        return [first] + [client.job(NOOP, {}) for _ in range(count - 1)]

    return make


async def is_drained(config: DatabaseConfig) -> None:
    """Wait until no job is left."""
    connection = await asyncpg.connect(config.dsn)
    try:
        with anyio.fail_after(DEADLINE_S):
            while await connection.fetchval("select exists (select from chronos.jobs)"):
                await anyio.sleep(_LOOK_S)
    finally:
        await connection.close()


async def read_waits(config: DatabaseConfig) -> list[tuple[float, float]]:
    """Of every sampled job when it was due, by the monotonic clock, and how long it waited."""
    connection = await asyncpg.connect(config.dsn)
    try:
        rows = await connection.fetch(_WAITS, SAMPLED)
        return [(row["due_s"], row["wait_s"]) for row in rows]
    finally:
        await connection.close()
