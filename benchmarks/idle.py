"""idle: what a worker costs that has nothing to do, and one in front of a backlog it may not touch.

A real `chronos-runtime run`, at its defaults. Statements are counted by the worker itself,
transactions by the server, which counts a second one for each probe of the listener: hearing it.
"""

import time

import anyio
import msgspec
import psutil

from benchmarks.apps import NOOP
from benchmarks.fill import fill
from benchmarks.report import Chart, Report, Series
from benchmarks.server import Server, fresh_database, setting, usage
from benchmarks.steps import Steps
from benchmarks.workers import APP, WorkerProcess, running_worker
from chronos_runtime import Client
from chronos_runtime.config import DatabaseConfig

# Two rounds of the janitor, whose minute is the longest interval of all.
SECONDS = 120.0
QUICK_SECONDS = 30.0
BACKLOG = 1_000_000
QUICK_BACKLOG = 100_000
# As long as without: what one minute counts depends on which passes fall into it.
BACKLOG_SECONDS = 120.0
QUICK_BACKLOG_SECONDS = 20.0

_SETTLE_S = 12.0  # A backend at rest tells the last of its counters 10 s after it counted.
_LOOK_COMMITS = 2  # Of our own first look at the counters: it is planned, then run.
_STATEMENTS = "chronos_store_statement_seconds_count"
_PROBES = "chronos_listener_rows_total"


class Rest(msgspec.Struct, frozen=True):
    """What a worker spent while it rested."""

    transactions_per_min: float
    statements_per_min: float
    cpu_ratio: float
    rss_mb: float


async def measure(server: Server, steps: Steps, *, quick: bool) -> Report:
    """Run the benchmark."""
    backlog = QUICK_BACKLOG if quick else BACKLOG
    steps.start(3, "nothing to do")
    # Its visits to the database count as transactions, and would as the worker's.
    async with setting(server, "autovacuum", "off"):
        async with fresh_database(server) as config:
            empty = await _rest(config, QUICK_SECONDS if quick else SECONDS)
        steps.step("filling")
        async with fresh_database(server) as config:
            await fill(config, backlog, NOOP)
            async with Client.connect(config.dsn) as client:
                await client.pause("default")
            steps.step("a backlog, paused")
            paused = await _rest(config, QUICK_BACKLOG_SECONDS if quick else BACKLOG_SECONDS)
        steps.step()
    return _report(empty, paused, backlog)


async def _rest(config: DatabaseConfig, seconds: float) -> Rest:
    """A worker at rest for so long."""
    async with running_worker(APP, config.dsn) as worker:
        await worker.is_up()
        await anyio.sleep(_SETTLE_S)
        process = psutil.Process(worker.pid)
        before, said_before = await usage(config), await _statements(worker)
        started, cpu_s = time.monotonic(), _cpu_s(process)
        await anyio.sleep(seconds)
        after, said = await usage(config), await _statements(worker) - said_before
        minutes, cpu_s = (time.monotonic() - started) / 60, _cpu_s(process) - cpu_s
        commits = after.commits - before.commits - _LOOK_COMMITS
        return Rest(
            transactions_per_min=commits / minutes,
            statements_per_min=said / minutes,
            cpu_ratio=cpu_s / minutes / 60,
            rss_mb=process.memory_info().rss / 2**20,
        )


async def _statements(worker: WorkerProcess) -> float:
    metrics = await worker.metrics()
    return metrics[_STATEMENTS] + metrics[_PROBES]


def _cpu_s(process: psutil.Process) -> float:
    spent = process.cpu_times()
    return float(spent.user + spent.system)


def _report(empty: Rest, paused: Rest, backlog: int) -> Report:
    sides = {"nothing to do": empty, f"{backlog:,} jobs in a paused topic": paused}
    return Report(
        name="idle",
        question="what does a worker cost that has nothing to do?",
        rows=[
            {
                "worker with": name,
                "transactions/min": rest.transactions_per_min,
                "statements/min": rest.statements_per_min,
                "CPU %": 100 * rest.cpu_ratio,
                "RSS MB": rest.rss_mb,
            }
            for name, rest in sides.items()
        ],
        figures={
            "transactions_per_min": empty.transactions_per_min,
            "statements_per_min": empty.statements_per_min,
            "cpu_ratio": empty.cpu_ratio,
            "rss_mb": empty.rss_mb,
            "backlog_transactions_per_min": paused.transactions_per_min,
            "backlog_cpu_ratio": paused.cpu_ratio,
            "backlog_rss_mb": paused.rss_mb,
        },
        charts=[
            Chart(
                title="A worker at rest",
                x="",
                y="transactions/min",
                kind="bars",
                series=[
                    Series(
                        "of the database",
                        ["nothing to do", "backlog, paused"],
                        [rest.transactions_per_min for rest in sides.values()],
                    )
                ],
            )
        ],
    )
