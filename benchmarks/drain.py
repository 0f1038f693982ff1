"""drain: how fast one process empties a queue of no-op jobs, and what that costs.

The runtime and the floor take turns in one run on one server, each round on a fresh database,
so that whatever else the machine does hits both. Durable defaults, history kept.
"""

import statistics
import time
from collections.abc import Callable
from uuid import UUID

import anyio
import asyncpg
import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks import floor
from benchmarks.server import embedded_server, fresh_database, load, usage
from chronos_runtime import Chronos, Client, Config, Job, Runtime
from chronos_runtime.config import DatabaseConfig, ExporterConfig
from chronos_runtime.garbage import collect_less

KIND = "noop"
BACKLOG_SMALL = 10_000  # What a deep backlog is measured against.
_DEADLINE_S = 600.0


class Round(msgspec.Struct, frozen=True):
    """The figures of one round of the runtime."""

    jobs_per_s: float
    cpu_s: float
    wal_bytes: int
    commits: int
    rollbacks: int
    duplicates: int
    lost: int


def measure(*, jobs: int, backlog: int, rounds: int) -> dict[str, object]:
    """Run the benchmark; its figures."""
    collect_less()  # As `chronos-runtime run` does.
    with embedded_server() as dsn, _progress() as progress:
        steps = rounds * (3 if backlog else 2)
        task = progress.add_task("drain", total=steps)
        return anyio.run(
            _measure,
            dsn,
            jobs,
            backlog,
            rounds,
            lambda: progress.advance(task),
            backend_options={"use_uvloop": True},
        )


def _progress() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    return Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True))


async def _measure(
    dsn: str, jobs: int, backlog: int, rounds: int, advance: Callable[[], None]
) -> dict[str, object]:
    drained: list[Round] = []
    small: list[Round] = []
    floors: list[float] = []
    for _ in range(rounds):
        async with fresh_database(dsn) as config:
            await load(config, jobs + backlog, KIND)
            floors.append(await floor.drain(config, jobs, KIND))
            advance()
        async with fresh_database(dsn) as config:
            drained.append(await _drain(config, jobs, backlog))
            advance()
        if backlog:
            async with fresh_database(dsn) as config:
                small.append(await _drain(config, jobs, BACKLOG_SMALL))
                advance()
    figures = _figures(drained, floors, jobs, backlog)
    if small:
        at_small = statistics.median(one.jobs_per_s for one in small)
        rate = statistics.median(one.jobs_per_s for one in drained)
        figures |= {"jobs_per_s_at_10k": at_small, "ratio_to_10k_backlog": rate / at_small}
    return figures


def _figures(
    drained: list[Round], floors: list[float], jobs: int, backlog: int
) -> dict[str, object]:
    rate = statistics.median(one.jobs_per_s for one in drained)
    lowest = statistics.median(floors)
    return {
        "benchmark": "drain",
        "jobs": jobs,
        "backlog": backlog,
        "rounds": len(drained),
        "jobs_per_s": rate,
        "floor_jobs_per_s": lowest,
        "ratio_to_floor": statistics.median(
            one.jobs_per_s / bare for one, bare in zip(drained, floors, strict=True)
        ),
        "transactions_per_job": statistics.median(one.commits for one in drained) / jobs,
        "wal_bytes_per_job": statistics.median(one.wal_bytes for one in drained) / jobs,
        "worker_cpu_s_per_1000": statistics.median(one.cpu_s for one in drained) / jobs * 1000,
        "rollbacks": sum(one.rollbacks for one in drained),
        "duplicates": sum(one.duplicates for one in drained),
        "lost": sum(one.lost for one in drained),
    }


async def _drain(config: DatabaseConfig, jobs: int, backlog: int) -> Round:
    """One round: from the opening of the gate to the commit of the last of `jobs` outcomes.

    The floor's connections are open before its clock starts, so the runtime's are too: it comes
    up before a closed gate.
    """
    await load(config, jobs + backlog, KIND)
    client = Client.connect(config.dsn)
    await client.pause()
    app, ran = Chronos(), list[UUID]()

    @app.handler(KIND)
    async def noop(job: Job, payload: dict[str, int]) -> None:
        ran.append(job.id)

    before = await usage(config)
    runtime = Runtime(app, Config(database=config, exporter=ExporterConfig(port=0)))
    stop = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(runtime.run, stop)
        await _is_up(runtime)
        await client.resume()
        started, cpu = time.perf_counter(), time.process_time()
        with anyio.fail_after(_DEADLINE_S):
            while (succeeded := runtime.metrics.succeeded.total) < jobs:
                await anyio.sleep(0.005)
        seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
        stop.set()
    await client.close()
    after = await usage(config)
    total = runtime.metrics.succeeded.total
    return Round(
        jobs_per_s=succeeded / seconds,
        cpu_s=cpu * jobs / succeeded,
        # The window ends a little after `jobs` outcomes; its costs are shared out per job.
        wal_bytes=round((after.wal_bytes - before.wal_bytes) * jobs / total),
        commits=round((after.commits - before.commits) * jobs / total),
        rollbacks=after.rollbacks - before.rollbacks,
        duplicates=len(ran) - len(set(ran)),
        lost=await _lost(config, jobs + backlog),
    )


async def _is_up(runtime: Runtime) -> None:
    """Wait until it has claimed in vain and listens."""
    sample = runtime.metrics.registry.get_sample_value
    with anyio.fail_after(_DEADLINE_S):
        while not (
            sample("chronos_claimer_rows_total") == 0 and sample("chronos_listener_up_state")
        ):
            await anyio.sleep(0.005)
        while (sample("chronos_claimer_pass_seconds_count") or 0) < 2:
            await anyio.sleep(0.005)


async def _lost(config: DatabaseConfig, enqueued: int) -> int:
    """Jobs that are neither waiting nor in the history."""
    connection = await asyncpg.connect(config.dsn)
    try:
        there = await connection.fetchval("select count(distinct id) from chronos.all_jobs")
        return enqueued - int(there)
    finally:
        await connection.close()
