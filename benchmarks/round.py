"""One round of the runtime in this process: jobs loaded, a gate opened, the clock stopped."""

import time
from array import array
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import asyncpg
import msgspec

from benchmarks.server import Server, load, usage
from chronos_runtime import Chronos, Client, Config, Job, Runtime
from chronos_runtime.config import DatabaseConfig, ExporterConfig

KIND = "noop"
DEADLINE_S = 1200.0
_LOOK_S = 0.005
_PASSES = {"claimer": 2, "scheduler": 1, "watchdog": 1, "janitor": 1, "surveyor": 1}


class Round(msgspec.Struct, frozen=True):
    """The figures of one round."""

    jobs_per_s: float
    worker_cpu_us: float
    server_cpu_us: float
    """Of every process of the server: backends, WAL writer, checkpointer, autovacuum."""
    wal_bytes: float
    commits: float
    rollbacks: int
    duplicates: int
    lost: int


async def drain_round(
    server: Server, config: DatabaseConfig, jobs: int, *, backlog: int = 0
) -> Round:
    """Drain `jobs` no-op jobs while `backlog` more wait behind them.

    The clock runs from the opening of the gate to the commit of the last of `jobs` outcomes. The
    floor's connections are open before its clock starts, so the runtime's are too: it comes up
    before a closed gate.
    """
    await load(config, jobs + backlog, KIND)
    app, ran = Chronos(), array("q")  # A list would keep an object of each: 0.2 µs a run.

    @app.handler(KIND)
    async def noop(job: Job, payload: dict[str, int]) -> None:
        ran.append(job.seq)

    client = Client.connect(config.dsn)
    await client.pause()
    before = await usage(config)
    async with running(app, config) as runtime:
        await is_up(runtime)
        server_cpu_s = server.cpu_s()  # Takes a millisecond: before the clock starts.
        started, cpu_s = time.perf_counter(), time.process_time()
        await client.resume()
        with anyio.fail_after(DEADLINE_S):
            while (succeeded := runtime.metrics.succeeded.total) < jobs:
                await anyio.sleep(_LOOK_S)
        seconds, cpu_s = time.perf_counter() - started, time.process_time() - cpu_s
        server_cpu_s = server.cpu_s() - server_cpu_s
    await client.close()
    after = await usage(config)
    total = runtime.metrics.succeeded.total
    # The window ends a little after `jobs` outcomes; its costs are shared out per job.
    return Round(
        jobs_per_s=succeeded / seconds,
        worker_cpu_us=cpu_s / succeeded * 1e6,
        server_cpu_us=server_cpu_s / succeeded * 1e6,
        wal_bytes=(after.wal_bytes - before.wal_bytes) / total,
        commits=(after.commits - before.commits) / total,
        rollbacks=after.rollbacks - before.rollbacks,
        duplicates=len(ran) - len(set(ran)),
        lost=await _lost(config, jobs + backlog),
    )


@asynccontextmanager
async def running(app: Chronos, config: DatabaseConfig) -> AsyncIterator[Runtime]:
    """The runtime at its defaults, in this process; drained at the end."""
    runtime = Runtime(app, Config(database=config, exporter=ExporterConfig(port=0)))
    stop = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(runtime.run, stop)
        yield runtime
        stop.set()


async def is_up(runtime: Runtime) -> None:
    """Wait until it has claimed in vain and listens, and those that come by the minute have been.

    A start is not what is measured: what the janitor does once a minute would fall into a second.
    """
    sample = runtime.metrics.registry.get_sample_value
    with anyio.fail_after(DEADLINE_S):
        while not (
            sample("chronos_claimer_rows_total") == 0 and sample("chronos_listener_up_state")
        ):
            await anyio.sleep(_LOOK_S)
        for actor, passes in _PASSES.items():
            while (sample(f"chronos_{actor}_pass_seconds_count") or 0) < passes:
                await anyio.sleep(_LOOK_S)


async def _lost(config: DatabaseConfig, enqueued: int) -> int:
    """Jobs that are neither waiting nor in the history."""
    connection = await asyncpg.connect(config.dsn)
    try:
        there = await connection.fetchval("select count(distinct id) from chronos.all_jobs")
        return enqueued - int(there)
    finally:
        await connection.close()
