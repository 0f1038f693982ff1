"""scale: what more processes on one database bring, and what it costs them to share it.

No-op jobs keep a core busy with the queue's own work and another with Postgres's: on two cores
one process fills the machine, and the question is how much is lost when more of them compete.
Handlers that wait leave the processor alone: there more processes should bring more.

Each process is a `chronos-runtime run` of its own. The numbers of processes take turns.
"""

import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from statistics import median

import anyio
import asyncpg
import msgspec

from benchmarks.apps import NOOP, WAIT_S, WAITING
from benchmarks.fill import fill
from benchmarks.report import Chart, Report, Series
from benchmarks.round import DEADLINE_S
from benchmarks.server import Server, fresh_database, usage
from benchmarks.steps import Steps
from benchmarks.workers import APP, running_worker
from chronos_runtime import Client

PROCESSES = (1, 2, 4, 8)
JOBS = 200_000  # What eight processes claim ahead, 30,000 at most, is not most of it.
QUICK_JOBS = 60_000

WAITING_PROCESSES = (1, 4)
CONCURRENCY = 20  # Modest: one process is then bound by its handlers' waiting, not by its core.
JOBS_PER_PROCESS = 25_000  # Seven seconds, whatever the number of processes.
QUICK_JOBS_PER_PROCESS = 10_000

ROUNDS = 3
QUICK_ROUNDS = 1

_LOOK_S = 0.01

# By the end of the index: while the job that comes last is still ready, one page says so.
_IS_WAITING = """
    select exists (
        select from (
            select from chronos.jobs
            where state = 'ready' and topic = 'default'
            order by priority desc, seq desc
            limit 1
        ) as last
    )
"""
_IS_LIVE = "select exists (select from chronos.jobs)"

# A job that ran twice has two records, or one of its second attempt.
_ENDED = """
    select count(distinct id) as jobs, sum(attempt) - count(distinct id) as duplicates
    from chronos.job_history
"""


class Drained(msgspec.Struct, frozen=True):
    """One drain by so many processes."""

    jobs_per_s: float
    rollbacks: int
    duplicates: int
    lost: int


Rounds = dict[int, list[Drained]]
"""By number of processes, a drain for each round."""


async def measure(
    server: Server, steps: Steps, *, quick: bool, rounds: int | None = None
) -> Report:
    """Run the benchmark."""
    jobs = QUICK_JOBS if quick else JOBS
    jobs_per_process = QUICK_JOBS_PER_PROCESS if quick else JOBS_PER_PROCESS
    rounds = rounds or (QUICK_ROUNDS if quick else ROUNDS)
    noop: Rounds = {processes: [] for processes in PROCESSES}
    waiting: Rounds = {processes: [] for processes in WAITING_PROCESSES}
    steps.start(rounds * (len(noop) + len(waiting)), "no-op jobs")
    for _ in range(rounds):
        for processes in noop:
            noop[processes].append(await _drain(server, NOOP, jobs, processes, {}))
            steps.step("waiting jobs" if processes == PROCESSES[-1] else "")
        for processes in waiting:
            waiting[processes].append(
                await _drain(
                    server,
                    WAITING,
                    jobs_per_process * processes,
                    processes,
                    {"executor.concurrency": CONCURRENCY},
                )
            )
            steps.step("no-op jobs" if processes == WAITING_PROCESSES[-1] else "")
    return _report(noop, waiting)


async def _drain(
    server: Server, kind: str, jobs: int, processes: int, settings: Mapping[str, object]
) -> Drained:
    """All processes come up before a closed gate; the clock runs from its opening."""
    async with (
        fresh_database(server) as config,
        Client.connect(config.dsn) as client,
        AsyncExitStack() as fleet,
    ):
        await fill(config, jobs, kind)
        await client.pause()
        workers = [
            await fleet.enter_async_context(running_worker(APP, config.dsn, settings=settings))
            for _ in range(processes)
        ]
        for worker in workers:
            await worker.is_up()
        before = await usage(config)
        connection = await asyncpg.connect(config.dsn)
        started = time.perf_counter()
        await client.resume()
        with anyio.fail_after(DEADLINE_S):
            for is_left in (_IS_WAITING, _IS_LIVE):
                while await connection.fetchval(is_left):
                    await anyio.sleep(_LOOK_S)
        seconds = time.perf_counter() - started
        ended = await connection.fetchrow(_ENDED)
        await connection.close()
        assert ended is not None
        return Drained(
            jobs_per_s=jobs / seconds,
            rollbacks=(await usage(config)).rollbacks - before.rollbacks,
            duplicates=int(ended["duplicates"]),
            lost=jobs - int(ended["jobs"]),
        )


def _report(noop: Rounds, waiting: Rounds) -> Report:
    every = [one for rounds in (*noop.values(), *waiting.values()) for one in rounds]
    one, *_, most = PROCESSES
    few, many = WAITING_PROCESSES
    best = [max(drains, key=_speed) for drains in zip(*noop.values(), strict=True)]
    return Report(
        name="scale",
        question="what do more processes on one database bring, and do they get in each"
        " other's way?",
        rows=[
            *({"handlers": "do nothing"} | _row(count, noop) for count in noop),
            *(
                {"handlers": f"wait {WAIT_S * 1000:g} ms"} | _row(count, waiting)
                for count in waiting
            ),
        ],
        figures={
            "throughput_2_to_1": _ratio(noop[2], noop[one]),
            f"throughput_{most}_to_best": _ratio(noop[most], best),
            f"waiting_{many}_to_{few}": _ratio(waiting[many], waiting[few]),
            "rollbacks": sum(one.rollbacks for one in every),
            "duplicates": sum(one.duplicates for one in every),
            "lost": sum(one.lost for one in every),
        },
        charts=[
            _chart("No-op jobs", noop),
            _chart(f"Handlers that wait {WAIT_S * 1000:g} ms, {CONCURRENCY} at once each", waiting),
        ],
    )


def _row(processes: int, rounds: Rounds) -> dict[str, object]:
    few = min(rounds)
    return {
        "processes": processes,
        "jobs/s": _middle(rounds[processes]),
        f"to {few}": _ratio(rounds[processes], rounds[few]),
        "rollbacks": sum(one.rollbacks for one in rounds[processes]),
        "duplicates": sum(one.duplicates for one in rounds[processes]),
    }


def _chart(title: str, rounds: Rounds) -> Chart:
    return Chart(
        title=title,
        x="processes",
        y="jobs/s",
        kind="bars",
        series=[
            Series("median", [str(one) for one in rounds], list(map(_middle, rounds.values())))
        ],
    )


def _speed(drained: Drained) -> float:
    return drained.jobs_per_s


def _middle(drains: Sequence[Drained]) -> float:
    return median(map(_speed, drains))


def _ratio(drains: Sequence[Drained], others: Sequence[Drained]) -> float:
    """Of one round to another one's, side by side."""
    return median(
        one.jobs_per_s / other.jobs_per_s for one, other in zip(drains, others, strict=True)
    )
