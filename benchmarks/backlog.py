"""backlog: what the jobs that wait cost the jobs that run.

The same drain is measured while more and more jobs wait behind it. Every depth is filled once
and copied for each round, so that all begin alike: vacuumed, analysed, nothing dead. The depths
take turns, each round in another order, so that whatever else the machine does hits them all.
"""

import shutil
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from statistics import median, quantiles

import anyio
import asyncpg
import msgspec

from benchmarks.apps import NOOP, app
from benchmarks.fill import copied_database, filled_database
from benchmarks.report import Chart, Report, Series
from benchmarks.round import DEADLINE_S, is_up, running
from benchmarks.server import Server, usage
from benchmarks.statements import CLAIM, watched_statements
from benchmarks.steps import Steps
from chronos_runtime import Client, Config
from chronos_runtime.config import DatabaseConfig

# Half a second to two, thirty full claims. Many short rounds rather than few long ones: what else
# the machine does then hits neighbours alike, and over all rounds the slowest hundredth of the
# claims is not one unlucky claim.
JOBS = 60_000
QUICK_JOBS = 40_000
DEPTHS = (10_000, 100_000, 1_000_000)
QUICK_DEPTHS = (10_000, 200_000)
DEEP = 10_000_000  # 3.5 GB, twice over while its copy is drained.
ROUNDS = 16  # Of eight, the throughput of one depth to another was 0.94 to 1.05 without a cause.
QUICK_ROUNDS = 3
# What a process holds does not wait: so many more are there, and the depth is left at the end.
HELD = Config().executor.concurrency + 4 * Config().claimer.batch_max

_BYTES_PER_JOB = 2 * 400  # Measured: 354 of table and indexes; and again for the copy.
_BYTES_BESIDES = 4 * 2**30  # The log, twice max_wal_size at the worst.
_LOOK_S = 0.005


class Window(msgspec.Struct, frozen=True):
    """The figures of one drain at one depth."""

    jobs_per_s: float
    cpu_us: float
    """Of this process and all of the server's, for each job."""
    claims_ms: list[float]
    pages: float
    """Touched by a claim at the end of the drain, for each job it claims."""
    wal_bytes: float
    commits: float


Windows = dict[int, list[Window]]
"""By depth, a window for each round."""


async def measure(
    server: Server, steps: Steps, *, quick: bool, deep: bool = False, rounds: int | None = None
) -> Report:
    """Run the benchmark."""
    jobs = QUICK_JOBS if quick else JOBS
    depths = (QUICK_DEPTHS if quick else DEPTHS) + ((DEEP,) if deep else ())
    rounds = rounds or (QUICK_ROUNDS if quick else ROUNDS)
    await _check_disk(server, sum(depths) + (jobs + HELD) * len(depths))
    windows: Windows = {depth: [] for depth in depths}
    steps.start(len(depths) * (rounds + 1), "filling")
    async with AsyncExitStack() as filled:
        names: dict[int, str] = {}
        for depth in depths:
            names[depth] = await filled.enter_async_context(
                filled_database(server, jobs + HELD + depth, NOOP)
            )
            steps.step("draining" if depth == depths[-1] else "")
        for turn in range(rounds):
            first = turn % len(depths)
            async with AsyncExitStack() as copied:
                # All copies first: gigabytes of them leave a disk busy, which must hit all alike.
                copies = {
                    depth: await copied.enter_async_context(copied_database(server, names[depth]))
                    for depth in depths
                }
                for depth in depths[first:] + depths[:first]:
                    windows[depth].append(await _drain(server, copies[depth], jobs))
                    steps.step()
    return _report(jobs, windows)


async def _drain(server: Server, config: DatabaseConfig, jobs: int) -> Window:
    """Drain `jobs` from the head; the clock runs from the opening of the gate."""
    async with Client.connect(config.dsn) as client:
        await client.pause()
        before = await usage(config)
        with watched_statements() as statements:
            async with running(app, config) as runtime:
                await is_up(runtime)
                started, cpu_s = time.perf_counter(), time.process_time() + server.cpu_s()
                await client.resume()
                with anyio.fail_after(DEADLINE_S):
                    while (succeeded := runtime.metrics.succeeded.total) < jobs:
                        await anyio.sleep(_LOOK_S)
                seconds = time.perf_counter() - started
                cpu_s = time.process_time() + server.cpu_s() - cpu_s
        after = await usage(config)
    pages, claimed = await statements.pages(config, CLAIM)
    # What was already claimed when the window ended is drained too, and its costs are counted.
    total = runtime.metrics.succeeded.total
    return Window(
        jobs_per_s=succeeded / seconds,
        cpu_us=cpu_s / succeeded * 1e6,
        claims_ms=statements.times_ms(CLAIM),
        pages=pages / claimed,
        wal_bytes=(after.wal_bytes - before.wal_bytes) / total,
        commits=(after.commits - before.commits) / total,
    )


async def _check_disk(server: Server, jobs: int) -> None:
    connection = await asyncpg.connect(server.dsn)
    try:
        folder = str(await connection.fetchval("show data_directory"))
    finally:
        await connection.close()
    needed, free = _BYTES_PER_JOB * jobs + _BYTES_BESIDES, shutil.disk_usage(folder).free
    if free < needed:
        raise SystemExit(
            f"backlog: {jobs:,} jobs take {needed / 2**30:.0f} GB of disk and {folder} has"
            f" {free / 2**30:.0f}; set TMPDIR to a larger one"
        )


def _report(jobs: int, windows: Windows) -> Report:
    shallow, *deeper = windows
    figures: dict[str, float] = {}
    for depth in deeper:
        name = f"{_short(depth)}_to_{_short(shallow)}"
        figures[f"throughput_{name}"] = median(
            one.jobs_per_s / other.jobs_per_s
            for one, other in zip(windows[depth], windows[shallow], strict=True)
        )
        for percent in (50, 99):
            figures[f"claim_p{percent}_{name}"] = _claim_ms(windows[depth], percent) / _claim_ms(
                windows[shallow], percent
            )
        for figure in ("cpu_us", "pages"):
            figures[f"{figure}_{name}"] = _middle(windows[depth], figure) / _middle(
                windows[shallow], figure
            )
    return Report(
        name="backlog",
        question="what do the jobs that wait cost the jobs that run?",
        rows=[{"jobs waiting": depth} | _row(one) for depth, one in windows.items()],
        figures=figures,
        charts=_charts(jobs, windows),
    )


def _row(windows: Sequence[Window]) -> dict[str, object]:
    return {
        "jobs/s": _middle(windows, "jobs_per_s"),
        "claim p50 ms": _claim_ms(windows, 50),
        "claim p99 ms": _claim_ms(windows, 99),
        "claims": sum(len(one.claims_ms) for one in windows),
        "CPU µs/job": _middle(windows, "cpu_us"),
        "pages of a claim/job": _middle(windows, "pages"),
        "WAL bytes/job": _middle(windows, "wal_bytes"),
        "transactions/job": _middle(windows, "commits"),
    }


def _charts(jobs: int, windows: Windows) -> list[Chart]:
    depths = [_short(depth) for depth in windows]
    return [
        Chart(
            title=f"{jobs:,} jobs while more wait behind them",
            x="jobs waiting",
            y="jobs/s",
            kind="lines",
            series=[
                Series("median", depths, [_middle(one, "jobs_per_s") for one in windows.values()])
            ],
        ),
        Chart(
            title="Time of a claim",
            x="jobs waiting",
            y="ms",
            kind="lines",
            series=[
                Series(f"p{percent}", depths, [_claim_ms(one, percent) for one in windows.values()])
                for percent in (50, 99)
            ],
        ),
    ]


def _middle(windows: Sequence[Window], figure: str) -> float:
    return float(median(getattr(one, figure) for one in windows))


def _claim_ms(windows: Sequence[Window], percent: int) -> float:
    """Of all claims of all rounds: one round has too few for its slowest hundredth."""
    claims_ms = [claim for one in windows for claim in one.claims_ms]
    return quantiles(claims_ms, n=100, method="inclusive")[percent - 1]


def _short(jobs: int) -> str:
    """A depth as it stands in names.

    >>> _short(10_000), _short(1_000_000)
    ('10k', '1m')
    """
    return f"{jobs // 1_000_000}m" if jobs >= 1_000_000 else f"{jobs // 1000}k"
