"""pinned: what an old snapshot costs, held by somebody else for as long as the drain takes.

A report, a backup or a forgotten transaction keeps every row that it could still read. Claimed
and finished rows then stay in the table and its indexes, and vacuum works in vain. The same drain
without a snapshot takes turns with it and says what is not the snapshot's doing: in both the
history grows, and checkpoints come.
"""

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, nullcontext
from itertools import pairwise
from statistics import fmean, linear_regression, median

import anyio
import asyncpg
import msgspec

from benchmarks.apps import NOOP, app
from benchmarks.fill import copied_database, filled_database
from benchmarks.report import Chart, Report, Series
from benchmarks.round import DEADLINE_S, is_up, running
from benchmarks.server import Server
from benchmarks.statements import CLAIM, REAP, SURVEY, watched_statements
from benchmarks.steps import Steps
from chronos_runtime import Client, Runtime
from chronos_runtime.config import DatabaseConfig

INTERVALS = 5  # Of one second to three: a round of autovacuum takes a third, and comes every ten.
JOBS = 1_000_000
QUICK_JOBS = 150_000
# Connections, plans, the first full claims; and the server's buffers, which are clean at first.
# Once they are full of changes, a page read in needs another one written, snapshot or not.
WARM_UP = 250_000
QUICK_WARM_UP = 15_000
COOL_DOWN = 20_000  # Still waiting when the last interval ends: twice what is claimed ahead.
ROUNDS = 16  # Last to first was 0.89 to 1.20 in single drains, 0.94 to 1.03 in medians of eight.
QUICK_ROUNDS = 1

_FREE, _HELD = "no snapshot", "a snapshot held"
_LOOK_S = 0.002
_STATISTICS_LAG_S = 1.5  # A backend tells its counters at most once a second.

_LEFT = """
    select n_dead_tup, pg_total_relation_size(relid) / 1e6::double precision, autovacuum_count
    from pg_stat_user_tables
    where relid = 'chronos.jobs'::regclass
"""


class Mark(msgspec.Struct, frozen=True):
    """Where a drain stood at the end of an interval."""

    jobs: int
    at: float
    cpu_s: float
    """Spent by now: this process and all of the server's."""


class Drained(msgspec.Struct, frozen=True):
    """One drain, interval by interval, and what it left in the table."""

    jobs_per_s: list[float]
    cpu_us: list[float]
    """For each job: what others do on this machine shows less in it."""
    slowest_ms: dict[str, float]
    """By statement."""
    dead_rows: int
    table_mb: float
    """With its indexes."""
    vacuums: int
    was_held: bool
    """Whether somebody held one and the same snapshot from the beginning to the end."""


Drains = dict[str, list[Drained]]
"""Without a snapshot and with one, a drain for each round."""


async def measure(
    server: Server, steps: Steps, *, quick: bool, jobs: int | None = None, rounds: int | None = None
) -> Report:
    """Run the benchmark."""
    jobs = jobs or (QUICK_JOBS if quick else JOBS)
    warm_up = QUICK_WARM_UP if quick else WARM_UP
    rounds = rounds or (QUICK_ROUNDS if quick else ROUNDS)
    drains: Drains = {_FREE: [], _HELD: []}
    steps.start(1 + len(drains) * rounds, "filling")
    async with filled_database(server, warm_up + jobs + COOL_DOWN, NOOP) as name:
        steps.step("draining")
        for _ in range(rounds):
            for snapshot, drained in drains.items():
                async with copied_database(server, name) as config:
                    drained.append(
                        await _drain(server, config, warm_up, jobs, is_held=snapshot == _HELD)
                    )
                steps.step()
    return _report(jobs, drains)


async def _drain(
    server: Server, config: DatabaseConfig, warm_up: int, jobs: int, *, is_held: bool
) -> Drained:
    watch = await asyncpg.connect(config.dsn)
    async with Client.connect(config.dsn) as client:
        await client.pause()
        async with _old_snapshot(config) if is_held else nullcontext() as pid:
            xmin = await _xmin(watch, pid)
            with watched_statements() as statements:
                async with running(app, config) as runtime:
                    await is_up(runtime)
                    await client.resume()
                    marks = [
                        await _reach(server, runtime, warm_up + jobs * interval // INTERVALS)
                        for interval in range(INTERVALS + 1)
                    ]
            was_held = xmin is not None and await _xmin(watch, pid) == xmin
            await anyio.sleep(_STATISTICS_LAG_S)
            left = await watch.fetchrow(_LEFT)
    await watch.close()
    assert left is not None
    spans = list(pairwise(marks))
    return Drained(
        jobs_per_s=[(to.jobs - since.jobs) / (to.at - since.at) for since, to in spans],
        cpu_us=[(to.cpu_s - since.cpu_s) / (to.jobs - since.jobs) * 1e6 for since, to in spans],
        slowest_ms={name: max(statements.times_ms(name)) for name in (CLAIM, REAP, SURVEY)},
        dead_rows=left[0],
        table_mb=left[1],
        vacuums=left[2],
        was_held=was_held,
    )


@asynccontextmanager
async def _old_snapshot(config: DatabaseConfig) -> AsyncIterator[int]:
    """The server's process that holds a snapshot from now on."""
    connection = await asyncpg.connect(config.dsn)
    try:
        await connection.execute("begin isolation level repeatable read")
        await connection.fetchval("select 1")
        yield connection.get_server_pid()
    finally:
        await connection.close()


async def _xmin(watch: asyncpg.Connection, pid: int | None) -> str | None:
    """The oldest transaction whose rows that process keeps, if any."""
    xmin: str | None = await watch.fetchval(
        "select backend_xmin::text from pg_stat_activity where pid = $1", pid
    )
    return xmin


async def _reach(server: Server, runtime: Runtime, jobs: int) -> Mark:
    """Wait until so many have succeeded."""
    with anyio.fail_after(DEADLINE_S):
        while (succeeded := runtime.metrics.succeeded.total) < jobs:
            await anyio.sleep(_LOOK_S)
    return Mark(succeeded, time.perf_counter(), time.process_time() + server.cpu_s())


def _report(jobs: int, drains: Drains) -> Report:
    free, held = (_course(drains[name], "jobs_per_s") for name in (_FREE, _HELD))
    return Report(
        name="pinned",
        question="what does an old snapshot, held by somebody else, cost?",
        rows=[{"drain": name} | _row(drained) for name, drained in drains.items()],
        figures={
            "last_to_first": held[-1] / held[0],
            "last_to_first_trend": _trend(held),
            "last_to_first_free": free[-1] / free[0],
            "last_to_first_trend_free": _trend(free),
            "last_to_first_trend_held_to_free": _trend(held) / _trend(free),
            "throughput_held_to_free": fmean(held) / fmean(free),
            "was_held": float(all(one.was_held for one in drains[_HELD])),
        },
        charts=[
            _chart(f"{jobs:,} jobs in {INTERVALS} intervals", "jobs/s", "jobs_per_s", drains),
            _chart("CPU time a job, worker and server", "µs", "cpu_us", drains),
        ],
    )


def _row(drained: Sequence[Drained]) -> dict[str, object]:
    jobs_per_s, cpu_us = _course(drained, "jobs_per_s"), _course(drained, "cpu_us")
    return {
        "jobs/s first": jobs_per_s[0],
        "jobs/s last": jobs_per_s[-1],
        "CPU µs/job first": cpu_us[0],
        "CPU µs/job last": cpu_us[-1],
        "slowest claim ms": max(one.slowest_ms[CLAIM] for one in drained),
        "slowest reap ms": max(one.slowest_ms[REAP] for one in drained),
        "slowest survey ms": max(one.slowest_ms[SURVEY] for one in drained),
        "dead rows left": max(one.dead_rows for one in drained),
        "table and indexes MB": max(one.table_mb for one in drained),
        "autovacuums": max(one.vacuums for one in drained),
    }


def _chart(title: str, y: str, figure: str, drains: Drains) -> Chart:
    places = [float(place) for place in range(1, INTERVALS + 1)]
    return Chart(
        title=title,
        x="interval",
        y=y,
        kind="lines",
        series=[Series(name, places, _course(one, figure)) for name, one in drains.items()],
    )


def _course(drained: Sequence[Drained], figure: str) -> list[float]:
    """A figure interval by interval, the median of the rounds."""
    rounds = [getattr(one, figure) for one in drained]
    return [float(median(values)) for values in zip(*rounds, strict=True)]


def _trend(course: Sequence[float]) -> float:
    """Last to first by the straight line through all of them: one unlucky interval weighs less.

    >>> round(_trend([100.0, 97.0, 99.0, 98.0]), 3)
    0.988
    """
    slope, start = linear_regression(range(len(course)), course)
    return (start + slope * (len(course) - 1)) / start
