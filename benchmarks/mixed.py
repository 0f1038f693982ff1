"""mixed: minutes of everything at once, at about half of what the machine can do.

Ten topics, ten priorities, one job in a hundred failing at first, one in twenty scheduled a few
seconds ahead; the producer here, the worker in a process of its own. What should be flat is
drawn over time: throughput, latency, dead rows, the table, the worker's memory.
"""

import random
import time
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from statistics import median, quantiles

import anyio
import asyncpg
import msgspec
import psutil

from benchmarks.report import Chart, Report, Series
from benchmarks.server import Server, fresh_database
from benchmarks.steps import Steps
from benchmarks.stream import Make, capacity, is_drained, offer, read_waits
from benchmarks.stream_app import APP, FLAKY, NOOP, SAMPLED
from benchmarks.workers import WorkerProcess, running_worker
from chronos_runtime import Client, NewJob
from chronos_runtime.config import DatabaseConfig
from chronos_runtime.job import PRIORITIES

MINUTES = 10.0  # Long enough for vacuum to come by dozens of times, and for a leak to show.
QUICK_MINUTES = 1 / 3
INTERVALS = 40
QUICK_INTERVALS = 8
CAPACITY_S = 10.0
QUICK_CAPACITY_S = 3.0
LOAD_RATIO = 0.5

TOPICS = [f"topic-{number}" for number in range(10)]
FAILING_RATIO = 0.01
SCHEDULED_RATIO = 0.05
DELAY_MIN_S, DELAY_MAX_S = 1.0, 4.0

_SUCCEEDED = "chronos_reporter_succeeded_jobs_total"
_SUCCEEDED_ONCE = "select count(distinct id) from chronos.job_history where state = 'succeeded'"
_TABLE = """
    select n_dead_tup as dead_rows, pg_total_relation_size(relid) as bytes
    from pg_catalog.pg_stat_user_tables
    where relid = 'chronos.jobs'::regclass
"""


class Look(msgspec.Struct, frozen=True):
    """What was seen at the end of an interval."""

    at_s: float
    succeeded: float
    dead_rows: int
    table_mb: float
    rss_mb: float


class Interval(msgspec.Struct, frozen=True):
    """One interval: what was seen at its end, and what went on in it."""

    minute: float
    jobs_per_s: float
    p50_ms: float
    p99_ms: float
    dead_rows: int
    table_mb: float
    rss_mb: float


async def measure(
    server: Server, steps: Steps, *, quick: bool, minutes: float | None = None
) -> Report:
    """Run the benchmark."""
    seconds = 60 * (minutes or (QUICK_MINUTES if quick else MINUTES))
    intervals = QUICK_INTERVALS if quick else INTERVALS
    settings = {"topics": ",".join(TOPICS)}
    steps.start(intervals + 1, "capacity")
    async with (
        fresh_database(server) as config,
        running_worker(APP, config.dsn, settings=settings) as worker,
    ):
        await worker.is_up()
        able = await capacity(config, QUICK_CAPACITY_S if quick else CAPACITY_S, topics=TOPICS)
    steps.step("running")
    looks: list[Look] = []
    async with fresh_database(server) as config:
        async with (
            running_worker(APP, config.dsn, settings=settings) as worker,
            Client.connect(config.dsn) as client,
        ):
            await worker.is_up()
            async with anyio.create_task_group() as tasks:
                watch = partial(_watch, looks, steps, seconds=seconds, intervals=intervals)
                tasks.start_soon(watch, config, worker)
                sent = await offer(
                    client, _mixture(client), jobs_per_s=able * LOAD_RATIO, seconds=seconds
                )
            await is_drained(config)
        waits = await read_waits(config)
        ended = await _ended(config)
    return _report(_intervals(looks, waits), waits, able=able, lost=sent - ended)


def _mixture(client: Client) -> Make:
    """The first job of a tick tells how long it waited; the others are of all sorts."""

    def make(due_s: float, count: int) -> list[NewJob]:
        return [_job(client, due_s, is_sample=number == 0) for number in range(count)]

    return make


def _job(client: Client, due_s: float, *, is_sample: bool) -> NewJob:
    topic, priority = random.choice(TOPICS), random.randrange(PRIORITIES)
    if is_sample:
        return client.job(SAMPLED, {"due_s": due_s}, topic=topic, priority=priority)
    kind = FLAKY if random.random() < FAILING_RATIO else NOOP
    is_scheduled = random.random() < SCHEDULED_RATIO
    delay_s = random.uniform(DELAY_MIN_S, DELAY_MAX_S) if is_scheduled else None
    return client.job(kind, {"n": 1.0}, topic=topic, priority=priority, delay_s=delay_s)


async def _watch(
    looks: list[Look],
    steps: Steps,
    config: DatabaseConfig,
    worker: WorkerProcess,
    *,
    seconds: float,
    intervals: int,
) -> None:
    """Look once, and again at the end of each interval."""
    connection = await asyncpg.connect(config.dsn)
    process, started = psutil.Process(worker.pid), time.monotonic()
    try:
        for number in range(intervals + 1):
            due_s = started + number * seconds / intervals
            await anyio.sleep(max(0.0, due_s - time.monotonic()))
            table = await connection.fetchrow(_TABLE)
            assert table is not None
            looks.append(
                Look(
                    at_s=time.monotonic(),
                    succeeded=(await worker.metrics())[_SUCCEEDED],
                    dead_rows=table["dead_rows"],
                    table_mb=table["bytes"] / 2**20,
                    rss_mb=process.memory_info().rss / 2**20,
                )
            )
            if number:
                steps.step()
    finally:
        await connection.close()


async def _ended(config: DatabaseConfig) -> int:
    """How many jobs have ended as they should, each counted once."""
    connection = await asyncpg.connect(config.dsn)
    try:
        return int(await connection.fetchval(_SUCCEEDED_ONCE))
    finally:
        await connection.close()


def _intervals(looks: Sequence[Look], waits: Sequence[tuple[float, float]]) -> list[Interval]:
    intervals = []
    for before, after in pairwise(looks):
        waits_ms = [1000 * wait_s for due_s, wait_s in waits if before.at_s <= due_s < after.at_s]
        percents = quantiles(waits_ms, n=100, method="inclusive")
        intervals.append(
            Interval(
                minute=(after.at_s - looks[0].at_s) / 60,
                jobs_per_s=(after.succeeded - before.succeeded) / (after.at_s - before.at_s),
                p50_ms=percents[49],
                p99_ms=percents[98],
                dead_rows=after.dead_rows,
                table_mb=after.table_mb,
                rss_mb=after.rss_mb,
            )
        )
    return intervals


def _report(
    intervals: Sequence[Interval],
    waits: Sequence[tuple[float, float]],
    *,
    able: float,
    lost: int,
) -> Report:
    percents_s = quantiles([wait_s for _, wait_s in waits], n=100, method="inclusive")
    rss_mb, quarter = [one.rss_mb for one in intervals], len(intervals) // 4
    return Report(
        name="mixed",
        question="what do minutes of everything at once look like?",
        rows=[_row(one) for one in _quarters(intervals)],
        figures={
            "capacity_jobs_per_s": able,
            "jobs_per_s": median(one.jobs_per_s for one in intervals),
            "latency_p50_ms": 1000 * percents_s[49],
            "latency_p99_ms": 1000 * percents_s[98],
            "rss_mb_max": max(rss_mb),
            "rss_growth_ratio": median(rss_mb[-quarter:]) / median(rss_mb[quarter : 2 * quarter]),
            "dead_rows_max": max(one.dead_rows for one in intervals),
            "table_mb_max": max(one.table_mb for one in intervals),
            "lost": lost,
        },
        charts=[
            _chart(intervals, "Throughput", "jobs/s", jobs_per_s="ended"),
            _chart(intervals, "From enqueue to start", "ms", p50_ms="p50", p99_ms="p99"),
            _chart(intervals, "Dead rows in the table", "rows", dead_rows="dead"),
            _chart(intervals, "Memory and table", "MB", rss_mb="worker RSS", table_mb="jobs"),
        ],
    )


def _quarters(intervals: Sequence[Interval]) -> list[Interval]:
    """The last interval of each quarter: the table is for reading, the charts have all."""
    return [intervals[len(intervals) * number // 4 - 1] for number in range(1, 5)]


def _row(one: Interval) -> dict[str, object]:
    return {
        "minute": one.minute,
        "jobs/s": one.jobs_per_s,
        "p50 ms": one.p50_ms,
        "p99 ms": one.p99_ms,
        "dead rows": one.dead_rows,
        "table MB": one.table_mb,
        "worker RSS MB": one.rss_mb,
    }


def _chart(intervals: Sequence[Interval], title: str, y: str, **columns: str) -> Chart:
    minutes = [one.minute for one in intervals]
    return Chart(
        title=title,
        x="minute",
        y=y,
        kind="lines",
        series=[
            Series(name, minutes, [float(getattr(one, column)) for one in intervals])
            for column, name in columns.items()
        ],
    )
