"""schedules: how late a fire is on an idle system, and what a look at a hundred thousand costs.

Late: a real `chronos-runtime run` at its defaults and one schedule, each second. How late its fire
is, the database says, by its own clock; how late its handler starts, the handler does. Cost: the
pass of the scheduler that fires a hundred schedules that are due, with two hundred in all and with
a hundred thousand, in turns.
"""

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from statistics import median, quantiles

import anyio
import asyncpg
import msgspec

from benchmarks.apps import TELLING
from benchmarks.report import Chart, Report, Series
from benchmarks.server import Server, fresh_database
from benchmarks.steps import Steps
from benchmarks.workers import APP, running_worker
from chronos_runtime import Client
from chronos_runtime.actors.scheduler import Scheduler
from chronos_runtime.config import DatabaseConfig, SchedulerConfig
from chronos_runtime.metrics import Metrics
from chronos_runtime.nudge import Nudge
from chronos_runtime.store.postgres import PostgresStore

FIRES = 120
QUICK_FIRES = 15
FEW, MANY = 200, 100_000
QUICK_MANY = 20_000
DUE = 100
PASSES = 60
QUICK_PASSES = 15

_WARM_PASSES = 6  # A prepared statement gets its plan with the sixth run.
_LOOK_S = 0.2

# Due at the start of an hour, whose fire moves a schedule to the next; the rest a year from now.
_ADD = """
insert into chronos.schedules (id, name, kind, interval_s, next_run_at)
select gen_random_uuid(), 'schedule ' || n, 'noop', 3600,
    date_trunc('hour', now()) + interval '1 year' + n * interval '1 second'
from generate_series(1, $1::integer) as n
"""
_RESET = """
update chronos.schedules set next_run_at = date_trunc('hour', now())
where name = any (array(select 'schedule ' || n from generate_series(1, $1::integer) as n))
"""
_LATE = """
select extract(epoch from enqueued_at - occurrence)::double precision as fire_s,
    (result #>> '{}')::double precision as start_s
from chronos.job_history where occurrence is not null order by occurrence
"""


class Late(msgspec.Struct, frozen=True):
    """How late the fires of a schedule were, and their handlers, each in seconds."""

    fire_s: list[float]
    start_s: list[float]


class Passes(msgspec.Struct, frozen=True):
    """A scheduler on a database with so many schedules, and what its passes took."""

    scheduler: Scheduler
    connection: asyncpg.Connection
    schedules: int
    took_s: list[float]


async def measure(server: Server, steps: Steps, *, quick: bool) -> Report:
    """Run the benchmark."""
    many = QUICK_MANY if quick else MANY
    steps.start(2, "late")
    async with fresh_database(server) as config:
        late = await _late(config, QUICK_FIRES if quick else FIRES)
    steps.step(f"{many:,} schedules")
    async with (
        _scheduled(server, "few", FEW) as few,
        _scheduled(server, "many", many) as crowd,
    ):
        for sides in [(few, crowd), (crowd, few)] * (QUICK_PASSES if quick else PASSES):
            for side in sides:
                await _pass(side)
    steps.step()
    return _report(late, few, crowd)


async def _late(config: DatabaseConfig, fires: int) -> Late:
    """A schedule each second, for so many of them."""
    async with running_worker(APP, config.dsn) as worker, Client.connect(config.dsn) as client:
        await worker.is_up()
        await client.schedules.add("each second", TELLING, every_s=1)
        connection = await asyncpg.connect(config.dsn)
        rows: Sequence[asyncpg.Record] = []
        try:
            while len(rows) <= fires:
                await anyio.sleep(_LOOK_S)
                rows = await connection.fetch(_LATE)
        finally:
            await connection.close()
    # The first one plans its statements.
    return Late([row["fire_s"] for row in rows[1:]], [row["start_s"] for row in rows[1:]])


@asynccontextmanager
async def _scheduled(server: Server, name: str, schedules: int) -> AsyncIterator[Passes]:
    """A database with so many schedules, vacuumed, and a scheduler whose statements are planned."""
    async with fresh_database(server, name=f"bench_{name}") as config:
        connection = await asyncpg.connect(config.dsn)
        await connection.execute(_ADD, schedules)
        await connection.execute("vacuum (analyze) chronos.schedules")
        store = PostgresStore(config)
        scheduler = Scheduler(
            SchedulerConfig(),
            store,
            Metrics(),
            nudge=Nudge(),
            returned=lambda: None,
            hears=lambda: True,
        )
        side = Passes(scheduler, connection, schedules, [])
        try:
            for _ in range(_WARM_PASSES):
                await _pass(side)
            side.took_s.clear()
            yield side
        finally:
            await store.close()
            await connection.close()


async def _pass(side: Passes) -> None:
    """Let a hundred be due, and fire them."""
    await side.connection.execute("delete from chronos.jobs")
    await side.connection.execute(_RESET, DUE)
    started = time.perf_counter()
    await side.scheduler.fire_once()
    side.took_s.append(time.perf_counter() - started)
    fired = await side.connection.fetchval("select count(*) from chronos.jobs")
    assert fired == DUE, f"{fired} of {DUE} fired"


def _report(late: Late, few: Passes, many: Passes) -> Report:
    sides = {"fired": late.fire_s, "its handler started": late.start_s}
    figures = {"fires": float(len(late.fire_s))}
    for name, waits_s in {"fire": late.fire_s, "start": late.start_s}.items():
        figures |= {
            f"{name}_late_p50_ms": 1e3 * median(waits_s),
            f"{name}_late_p99_ms": 1e3 * _p99(waits_s),
            f"{name}_late_max_ms": 1e3 * max(waits_s),
        }
    few_ms, many_ms = (1e3 * median(side.took_s) for side in (few, many))
    figures |= {"pass_few_ms": few_ms, "pass_many_ms": many_ms, "pass_ratio": many_ms / few_ms}
    return Report(
        name="schedules",
        question="how late is a fire, and what does a pass over many schedules cost?",
        rows=[
            *(
                {"what": f"late until {name}", "p50 ms": 1e3 * median(s), "p99 ms": 1e3 * _p99(s)}
                for name, s in sides.items()
            ),
            *(
                {
                    "what": f"pass, {DUE} due of {side.schedules:,}",
                    "p50 ms": 1e3 * median(side.took_s),
                    "p99 ms": 1e3 * _p99(side.took_s),
                }
                for side in (few, many)
            ),
        ],
        figures=figures,
        charts=[
            Chart(
                title=f"A pass that fires {DUE} schedules",
                x="schedules in all",
                y="ms",
                kind="bars",
                series=[
                    Series(
                        "median",
                        [f"{side.schedules:,}" for side in (few, many)],
                        [few_ms, many_ms],
                    )
                ],
            )
        ],
    )


def _p99(values: Sequence[float]) -> float:
    return quantiles(values, n=100, method="inclusive")[98]
