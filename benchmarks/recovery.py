"""recovery: how soon the jobs of a process that was killed run again in another.

A process that is killed tells nobody: its leases lapse, and the watchdog of another takes its
jobs back. In a family the parent is told by the operating system, and gives them back at once.

Each time the process that holds the jobs is killed, with -9, while another has room for them all;
that one is the next to be killed. The lease is short here, so that the run is too: what counts is
the time beyond it. In the family it is the default one, for there it must not matter.
"""

import os
import random
import signal
import time
from contextlib import AsyncExitStack
from statistics import median

import anyio
import asyncpg

from benchmarks.apps import HANGING
from benchmarks.report import Chart, Report, Series
from benchmarks.server import Server, fresh_database
from benchmarks.steps import Steps
from benchmarks.workers import APP, running_worker
from chronos_runtime import Client, Config

KILLS = 8
QUICK_KILLS = 2
JOBS = 50  # Half of the slots that a process has at its defaults.
LEASE_S = 4.0

# Three beats a lease, as the defaults have; the watchdog's interval is the default one.
_SHORT_LEASE = {"heartbeater.lease_s": LEASE_S, "heartbeater.interval_s": LEASE_S / 3}
_PHASE_S = Config().watchdog.interval_s  # Kills come at any moment between two sweeps.
_LOOK_S = 0.005
_DEADLINE_S = 60.0
_ATTEMPTS = 1000  # Every kill costs one.

# A worker's id and the lease tokens it issues have their front halves in common.
_HOLDER = """
    select left(worker.id::text, 18) as worker, worker.pid
    from chronos.jobs as job
    join chronos.workers as worker on left(worker.id::text, 18) = left(job.lease_token::text, 18)
    group by worker.id
    order by count(*) desc
    limit 1
"""
_RUNNING = """
    select count(*) from chronos.jobs
    where left(lease_token::text, 18) <> $1
"""


async def measure(server: Server, steps: Steps, *, quick: bool, kills: int | None = None) -> Report:
    """Run the benchmark."""
    kills = kills or (QUICK_KILLS if quick else KILLS)
    steps.start(2 * kills, "processes of their own")
    alone = await _kill_alone(server, steps, kills)
    family = await _kill_in_family(server, steps, kills)
    return _report(alone, family)


async def _kill_alone(server: Server, steps: Steps, kills: int) -> list[float]:
    """Seconds from each kill until all jobs run again; the next process comes up before it."""
    seconds = []
    async with fresh_database(server) as config, AsyncExitStack() as fleet:
        watch = await asyncpg.connect(config.dsn)
        victim = await fleet.enter_async_context(
            running_worker(APP, config.dsn, settings=_SHORT_LEASE)
        )
        await victim.is_up()
        await _enqueue(config.dsn, watch)
        for kill in range(kills):
            heir = await fleet.enter_async_context(
                running_worker(APP, config.dsn, settings=_SHORT_LEASE)
            )
            await heir.is_up()
            seconds.append(await _kill_holder(watch))
            victim.kill()  # Dead already; this reaps it.
            victim = heir
            steps.step("a family" if kill == kills - 1 else "")
        victim.kill()
        await watch.close()
    return seconds


async def _kill_in_family(server: Server, steps: Steps, kills: int) -> list[float]:
    """The same for a family of two; the parent replaces the one that was killed."""
    seconds = []
    async with (
        fresh_database(server) as config,
        running_worker(APP, config.dsn, processes=2) as family,
    ):
        watch = await asyncpg.connect(config.dsn)
        await family.is_up()
        await _enqueue(config.dsn, watch)
        for _ in range(kills):
            await family.is_up()
            seconds.append(await _kill_holder(watch))
            steps.step()
        family.kill()
        await watch.close()
    return seconds


async def _enqueue(dsn: str, watch: asyncpg.Connection) -> None:
    """Enqueue jobs that hang, and see them run."""
    async with Client.connect(dsn) as client:
        jobs = [client.job(HANGING, {"n": 1}, max_attempts=_ATTEMPTS) for _ in range(JOBS)]
        await client.enqueue_many(jobs)
    await _all_run(watch, besides="")


async def _kill_holder(watch: asyncpg.Connection) -> float:
    """Kill the process that holds the most jobs; seconds until all jobs run somewhere else."""
    await anyio.sleep(random.uniform(0, _PHASE_S))
    holder = await watch.fetchrow(_HOLDER)
    assert holder is not None
    killed = time.perf_counter()
    os.kill(holder["pid"], signal.SIGKILL)
    await _all_run(watch, besides=holder["worker"])
    return time.perf_counter() - killed


async def _all_run(watch: asyncpg.Connection, *, besides: str) -> None:
    """Wait until every job is leased by a process with a free slot, not by that worker."""
    with anyio.fail_after(_DEADLINE_S):
        while await watch.fetchval(_RUNNING, besides) < JOBS:
            await anyio.sleep(_LOOK_S)


def _report(alone: list[float], family: list[float]) -> Report:
    beyond = [one - LEASE_S for one in alone]
    kills = [float(place) for place in range(1, len(alone) + 1)]
    return Report(
        name="recovery",
        question="how soon do the jobs of a killed process run again?",
        rows=[
            {"killed": name, "kills": len(seconds), "median s": median(seconds)}
            | {"worst s": max(seconds), "lease s": lease_s}
            for name, seconds, lease_s in (
                ("a process of its own", alone, LEASE_S),
                ("one of a family", family, Config().heartbeater.lease_s),
            )
        ],
        figures={
            "recovery_minus_lease_s": median(beyond),
            "recovery_minus_lease_worst_s": max(beyond),
            "recovery_family_s": median(family),
            "recovery_family_worst_s": max(family),
        },
        charts=[
            Chart(
                title=f"{JOBS} jobs of a killed process run again",
                x="kill",
                y="s",
                kind="lines",
                series=[
                    Series(f"on its own, lease {LEASE_S:g} s", kills, alone),
                    Series("in a family", kills, family),
                ],
            )
        ],
    )
