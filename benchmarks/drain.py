"""drain: how fast one process empties a queue of no-op jobs, and what that costs.

The runtime and the floor take turns in one run on one server, each round on a fresh database,
so that whatever else the machine does hits both. Durable defaults, history kept.
"""

from statistics import median

from benchmarks import floor
from benchmarks.report import Chart, Report, Series
from benchmarks.round import KIND, Round, drain_round
from benchmarks.server import Server, fresh_database, load
from benchmarks.steps import Steps


async def measure(
    server: Server, steps: Steps, *, quick: bool, jobs: int | None = None, rounds: int | None = None
) -> Report:
    """Run the benchmark."""
    jobs = jobs or (40_000 if quick else 100_000)
    rounds = rounds or (3 if quick else 9)  # Seen in one run: pairs from 0.59 to 0.92.
    drained: list[Round] = []
    floors: list[float] = []
    steps.start(2 * rounds, "floor")
    for _ in range(rounds):
        async with fresh_database(server) as config:
            await load(config, jobs, KIND)
            floors.append(await floor.drain(config, jobs, KIND))
            steps.step("runtime")
        async with fresh_database(server) as config:
            drained.append(await drain_round(server, config, jobs))
            steps.step("floor")
    rate, bare = median(one.jobs_per_s for one in drained), median(floors)
    return Report(
        name="drain",
        question="how fast does one process empty a queue, and what does a job cost?",
        rows=[
            {"of": "runtime", "jobs/s": rate} | _costs(drained),
            {"of": "floor (bare asyncpg)", "jobs/s": bare},
        ],
        figures={
            "jobs_per_s": rate,
            "floor_jobs_per_s": bare,
            "ratio_to_floor": median(
                one.jobs_per_s / bare for one, bare in zip(drained, floors, strict=True)
            ),
            "worker_cpu_us_per_job": median(one.worker_cpu_us for one in drained),
            "server_cpu_us_per_job": median(one.server_cpu_us for one in drained),
            "transactions_per_job": median(one.commits for one in drained),
            "wal_bytes_per_job": median(one.wal_bytes for one in drained),
            "rollbacks": sum(one.rollbacks for one in drained),
            "duplicates": sum(one.duplicates for one in drained),
            "lost": sum(one.lost for one in drained),
        },
        charts=[
            Chart(
                title=f"{jobs:,} no-op jobs, one process",
                x="",
                y="jobs/s",
                kind="bars",
                series=[Series("median", ["runtime", "floor"], [rate, bare])],
            )
        ],
    )


def _costs(rounds: list[Round]) -> dict[str, object]:
    return {
        "worker CPU µs/job": median(one.worker_cpu_us for one in rounds),
        "server CPU µs/job": median(one.server_cpu_us for one in rounds),
        "transactions/job": median(one.commits for one in rounds),
        "WAL bytes/job": median(one.wal_bytes for one in rounds),
    }
