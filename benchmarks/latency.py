"""latency: how soon a job starts, on an idle queue and on one at half of what the machine can do.

Idle: producer and worker in one process, one job at a time with a random gap, from the call of
`enqueue` to the handler's first line; in turns with the floor, the same statements and the
notification between them on bare asyncpg. Under load: an open loop at half of the rate that
producer and worker process have just sustained in the same run. And what the notification that
makes the first so short costs the producer.
"""

import random
import time
from collections.abc import Awaitable, Callable, Sequence
from itertools import chain
from statistics import median, quantiles

import anyio

from benchmarks import latency_floor
from benchmarks.report import Chart, Report, Series
from benchmarks.round import is_up, running
from benchmarks.server import Server, fresh_database
from benchmarks.steps import Steps
from benchmarks.stream import capacity, is_drained, offer, read_waits, with_sample
from benchmarks.stream_app import APP, NOOP
from benchmarks.workers import running_worker
from chronos_runtime import Chronos, Client, Job
from chronos_runtime.config import DatabaseConfig

# Four of the slowest thousandth of each side, in three minutes. The blocks are short because a host
# that takes the cores away for 10 ms at a time does so for minutes, and then not.
JOBS = 500
BLOCKS = 8
QUICK_JOBS = 150
QUICK_BLOCKS = 2
GAP_MIN_S, GAP_MAX_S = 0.005, 0.030  # Too far apart to profit from each other.
CAPACITY_S = 10.0
QUICK_CAPACITY_S = 3.0
# A sample a tick: 6,000 of them.
LOAD_S = 60.0
QUICK_LOAD_S = 5.0
TURN = 100  # Enqueues of each side in turn, to tell what a notification costs.
TURNS = 20
QUICK_TURNS = 6

_PERCENTS = (50.0, 95.0, 99.0, 99.9)
_ALONE = "alone"

Percentiles = dict[str, float]
"""Milliseconds by name."""


async def measure(server: Server, steps: Steps, *, quick: bool) -> Report:
    """Run the benchmark."""
    blocks, jobs = (QUICK_BLOCKS, QUICK_JOBS) if quick else (BLOCKS, JOBS)
    idle_s: list[list[float]] = []
    floor_s: list[list[float]] = []
    steps.start(2 * blocks + 2, "idle")
    for _ in range(blocks):
        for waits_s, side in ((floor_s, latency_floor.start_jobs), (idle_s, _start_jobs)):
            async with fresh_database(server) as config:
                waits_s.append(await side(config, jobs, _gap))
            steps.step("half load" if len(idle_s) == blocks else "")
    async with fresh_database(server) as config:
        able, loaded_s = await _half_load(
            config,
            QUICK_CAPACITY_S if quick else CAPACITY_S,
            QUICK_LOAD_S if quick else LOAD_S,
        )
    steps.step("notifications")
    async with fresh_database(server) as config:
        notified_ms, alone_ms = await _enqueue_alone(config, QUICK_TURNS if quick else TURNS)
    steps.step()
    return _report(
        _percentiles([*chain(*idle_s)]),
        _percentiles([*chain(*floor_s)]),
        _percentiles(loaded_s),
        able=able,
        to_floor=median(
            median(ours) / median(bare) for ours, bare in zip(idle_s, floor_s, strict=True)
        ),
        alone={"notified": notified_ms, "not notified": alone_ms},
    )


async def _gap() -> None:
    await anyio.sleep(random.uniform(GAP_MIN_S, GAP_MAX_S))


async def _start_jobs(
    config: DatabaseConfig, jobs: int, gap: Callable[[], Awaitable[None]]
) -> list[float]:
    """One job after another on the runtime; the seconds from each call to its handler."""
    app, called, waits_s, ran = Chronos(), [0.0], list[float](), [anyio.Event()]

    @app.handler(NOOP)
    async def noop(job: Job, payload: dict[str, int]) -> None:
        waits_s.append(time.perf_counter() - called[0])
        ran[0].set()

    async with Client.connect(config.dsn) as client, running(app, config) as runtime:
        await is_up(runtime)
        for _ in range(jobs):
            await gap()
            called[0], ran[0] = time.perf_counter(), anyio.Event()
            await client.enqueue(NOOP, {"n": 1})
            await ran[0].wait()
    return waits_s


async def _half_load(
    config: DatabaseConfig, capacity_s: float, load_s: float
) -> tuple[float, list[float]]:
    """What producer and worker can do, and the waits of jobs at half of that."""
    async with (
        running_worker(APP, config.dsn) as worker,
        Client.connect(config.dsn) as client,
    ):
        await worker.is_up()
        able = await capacity(config, capacity_s)
        await offer(client, with_sample(client), jobs_per_s=able / 2, seconds=load_s)
        await is_drained(config)
    return able, [wait_s for _, wait_s in await read_waits(config)]


async def _enqueue_alone(config: DatabaseConfig, turns: int) -> tuple[float, float]:
    """Milliseconds of an enqueue that notifies an idle worker, and of one that does not.

    The worker's topic is paused: it wakes and looks, but no job takes the cores from the
    producer. Nobody serves the other topic, so nobody left a mark on it.
    """
    spent_ms: dict[str, list[float]] = {"default": [], _ALONE: []}
    async with (
        Client.connect(config.dsn) as client,
        running_worker(APP, config.dsn) as worker,
    ):
        await worker.is_up()
        await client.pause("default")
        for _ in range(turns):
            for topic, times_ms in spent_ms.items():
                started = time.perf_counter()
                for _ in range(TURN):
                    await client.enqueue(NOOP, {}, topic=topic)
                times_ms.append((time.perf_counter() - started) / TURN * 1000)
    return median(spent_ms["default"]), median(spent_ms[_ALONE])


def _percentiles(waits_s: Sequence[float]) -> Percentiles:
    steps = quantiles(waits_s, n=1000, method="inclusive")
    return {
        f"p{percent:g}".replace(".", ""): 1000 * steps[round(percent * 10) - 1]
        for percent in _PERCENTS
    }


def _report(
    idle: Percentiles,
    floor: Percentiles,
    loaded: Percentiles,
    *,
    able: float,
    to_floor: float,
    alone: dict[str, float],
) -> Report:
    sides = {
        "idle": idle,
        "idle, floor (bare asyncpg)": floor,
        f"at {able / 2:,.0f} jobs/s, half of what is possible": loaded,
    }
    rows: list[dict[str, object]] = [
        {"from enqueue to start": name} | {f"{key} ms": value for key, value in one.items()}
        for name, one in sides.items()
    ]
    rows += [
        {"from enqueue to start": f"enqueue alone, {name}", "p50 ms": value}
        for name, value in alone.items()
    ]
    return Report(
        name="latency",
        question="how soon does a job start?",
        rows=rows,
        figures={f"idle_{name}_ms": value for name, value in idle.items()}
        | {f"half_load_{name}_ms": value for name, value in loaded.items()}
        | {
            "floor_p50_ms": floor["p50"],
            "floor_p99_ms": floor["p99"],
            "idle_p50_to_floor": to_floor,
            "capacity_jobs_per_s": able,
            "notified_to_not_notified": alone["notified"] / alone["not notified"],
        },
        charts=[
            Chart(
                title="From enqueue to start",
                x="",
                y="ms",
                kind="bars",
                series=[
                    Series(name, list(idle), list(one.values()))
                    for name, one in (("idle", idle), ("floor", floor), ("half load", loaded))
                ],
                log_y=True,
            )
        ],
    )
