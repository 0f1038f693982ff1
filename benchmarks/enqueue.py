"""enqueue: what a job costs its producer, beside the bare insert and the bare COPY of the same row.

Both sides write the same columns into the same table, in blocks that take turns, each time
another one first, so that whatever else the machine does hits both. Every round has a fresh
database. The ratio is the median over the pairs of blocks.

One after another is measured twice: on a connection each, and both on one, as a producer has. To go
from one backend to another costs more than what is measured: on two cores the first hundreds of
statements after each change are slower, and slower for whoever does anything between two of them.
Seen in one run, in blocks of 200, 2,000 and 5,000: with a connection each 0.80, 0.92 and 0.92; on
one connection 0.94, 0.94 and 0.95. What our connections set costs nothing that shows: bare inserts
in turns on ours and on plain ones took 187, 182, 186 and 186, 176, 185 µs.
"""

import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from statistics import median
from uuid import UUID

import anyio
import asyncpg
import msgspec

from benchmarks.report import Chart, Report, Series
from benchmarks.server import Server, fresh_database
from benchmarks.steps import Steps
from chronos_runtime import Client, NewJob
from chronos_runtime.config import DatabaseConfig
from chronos_runtime.ids import new_job_ids
from chronos_runtime.store.connect import connect
from chronos_runtime.store.postgres import PostgresStore

# A block is long beside the clock and short beside what else comes and goes on a machine.
BLOCK = 200
BLOCKS = 10  # Of each side, in a round.
TASKS = 10  # As many as a client has connections.
BULK = 25_000  # Jobs in one call: its set-up no longer shows.
BULKS = 4
ROUNDS = 5
QUICK_ROUNDS = 2

_KIND, _PAYLOAD, _PAYLOAD_TEXT = "noop", {"n": 1}, '{"n":1}'
_COLUMNS = ("id", "topic", "kind", "priority", "payload", "max_attempts", "timeout_s")
_INSERT = f"insert into chronos.jobs ({', '.join(_COLUMNS)}) values ($1, $2, $3, $4, $5, $6, $7)"

Row = tuple[UUID, str, str, int, str, int, None]
Side = Callable[[], Awaitable[None]]


class Pair(msgspec.Struct, frozen=True):
    """A block of each side, one after the other."""

    ours_per_s: float
    bare_per_s: float


Pairs = dict[str, list[Pair]]
"""By the way of enqueuing."""


async def measure(
    server: Server, steps: Steps, *, quick: bool, rounds: int | None = None
) -> Report:
    """Run the benchmark."""
    rounds = rounds or (QUICK_ROUNDS if quick else ROUNDS)
    pairs: Pairs = {}
    made_per_s: list[float] = []
    steps.start(3 * rounds, "single")
    for _ in range(rounds):
        async with fresh_database(server) as config, Client.connect(config.dsn) as client:
            pairs.setdefault("single", []).extend(await _single_apart(config, client))
            pairs.setdefault("single_on_one", []).extend(await _single_on_one(config))
            steps.step("concurrent")
            pairs.setdefault("concurrent", []).extend(await _concurrent(config, client))
            steps.step("bulk")
        async with fresh_database(server) as config, Client.connect(config.dsn) as client:
            pairs.setdefault("bulk", []).extend(await _bulk(config, client, made_per_s))
            steps.step("single")
    return _report(pairs, median(made_per_s))


class _StoreOnOne(PostgresStore):
    """A store whose statements all go over a connection that others use, too."""

    def __init__(self, config: DatabaseConfig, connection: asyncpg.Connection) -> None:
        super().__init__(config)
        self._connection = connection

    async def connect(self) -> asyncpg.Connection:
        return self._connection


async def _single_apart(config: DatabaseConfig, client: Client) -> list[Pair]:
    """One after another, each awaited, on a connection of each side."""
    connection = await asyncpg.connect(config.dsn)
    try:
        return await _single(client, connection)
    finally:
        await connection.close()


async def _single_on_one(config: DatabaseConfig) -> list[Pair]:
    """The same, on one and the same connection."""
    connection = await connect(config)
    async with Client(_StoreOnOne(config, connection)) as client:  # Closes the connection.
        return await _single(client, connection)


async def _single(client: Client, connection: asyncpg.Connection) -> list[Pair]:
    async def ours() -> None:
        for _ in range(BLOCK):
            await client.enqueue(_KIND, _PAYLOAD)

    async def bare() -> None:
        for row in _rows(BLOCK):
            await connection.execute(_INSERT, *row)

    return [await _pair(turn, BLOCK, ours, bare) for turn in range(BLOCKS)]


async def _concurrent(config: DatabaseConfig, client: Client) -> list[Pair]:
    """The same from several tasks at once, each awaiting its own."""
    async with AsyncExitStack() as stack:
        connections = []
        for _ in range(TASKS):
            connection = await asyncpg.connect(config.dsn)
            stack.push_async_callback(connection.close)
            connections.append(connection)

        async def enqueue() -> None:
            for _ in range(BLOCK):
                await client.enqueue(_KIND, _PAYLOAD)

        async def insert(connection: asyncpg.Connection) -> None:
            for row in _rows(BLOCK):
                await connection.execute(_INSERT, *row)

        async def ours() -> None:
            async with anyio.create_task_group() as tasks:
                for _ in range(TASKS):
                    tasks.start_soon(enqueue)

        async def bare() -> None:
            async with anyio.create_task_group() as tasks:
                for connection in connections:
                    tasks.start_soon(insert, connection)

        return [await _pair(turn, TASKS * BLOCK, ours, bare) for turn in range(BLOCKS)]


async def _bulk(config: DatabaseConfig, client: Client, made_per_s: list[float]) -> list[Pair]:
    """Tens of thousands in one call. Jobs and records are made beforehand, outside the clock."""
    connection = await asyncpg.connect(config.dsn)
    pairs = []
    try:
        for turn in range(BULKS):
            started = time.perf_counter()
            jobs = [client.job(_KIND, _PAYLOAD) for _ in range(BULK)]
            made_per_s.append(BULK / (time.perf_counter() - started))
            pairs.append(await _bulk_pair(turn, client, connection, jobs))
    finally:
        await connection.close()
    return pairs


async def _bulk_pair(
    turn: int, client: Client, connection: asyncpg.Connection, jobs: list[NewJob]
) -> Pair:
    rows = _rows(BULK)

    async def ours() -> None:
        await client.enqueue_many(jobs)

    async def bare() -> None:
        await connection.copy_records_to_table(
            "jobs", schema_name="chronos", columns=_COLUMNS, records=rows
        )

    return await _pair(turn, BULK, ours, bare)


async def _pair(turn: int, jobs: int, ours: Side, bare: Side) -> Pair:
    seconds = {}
    for side in (ours, bare) if turn % 2 else (bare, ours):
        started = time.perf_counter()
        await side()
        seconds[side] = time.perf_counter() - started
    return Pair(jobs / seconds[ours], jobs / seconds[bare])


def _rows(count: int) -> list[Row]:
    return [(id, "default", _KIND, 5, _PAYLOAD_TEXT, 5, None) for id in new_job_ids(count)]


def _report(pairs: Pairs, made_per_s: float) -> Report:
    ours = {way: median(one.ours_per_s for one in some) for way, some in pairs.items()}
    bare = {way: median(one.bare_per_s for one in some) for way, some in pairs.items()}
    ratios = {
        way: median(one.ours_per_s / one.bare_per_s for one in some) for way, some in pairs.items()
    }
    said = {
        "single": "one after another",
        "single_on_one": "… both on one connection",
        "concurrent": f"{TASKS} tasks at once",
        "bulk": f"{BULK:,} a call",
    }
    rows: list[dict[str, object]] = [
        {
            "enqueued": said[way],
            "jobs/s": ours[way],
            "bare": "COPY" if way == "bulk" else "insert",
            "bare jobs/s": bare[way],
            "ratio": ratios[way],
        }
        for way in pairs
    ]
    rows.append({"enqueued": "making the jobs of a bulk, checks and all", "jobs/s": made_per_s})
    return Report(
        name="enqueue",
        question="what does a job cost its producer, beside the bare statement?",
        rows=rows,
        figures={f"{way}_jobs_per_s": rate for way, rate in ours.items()}
        | {f"{way}_ratio_to_bare": ratio for way, ratio in ratios.items()}
        | {"made_jobs_per_s": made_per_s},
        charts=[
            Chart(
                title="Enqueuing, beside the bare statement",
                x="",
                y="jobs/s",
                kind="bars",
                series=[
                    Series(name, [said[way] for way in pairs], [side[way] for way in pairs])
                    for name, side in (("runtime", ours), ("bare asyncpg", bare))
                ],
                log_y=True,
            )
        ],
    )
