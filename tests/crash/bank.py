"""A bank whose transfers are jobs: what they must never do is happen twice, or by half.

Nothing in its tables would keep a transfer from being made again: no key, no constraint.
"""

import os
import random
from dataclasses import dataclass
from typing import cast
from uuid import UUID

import anyio
import asyncpg
import msgspec

from chronos_runtime import Chronos, Client, Job
from chronos_runtime.backoff import Fixed
from chronos_runtime.store.migrations import Connection
from tests.crash.evidence import Evidence, wait_at

ACCOUNTS = 100
OPENING_CENTS = 100_000

TABLES = f"""
create table account (number integer primary key, cents bigint not null);
insert into account select number, {OPENING_CENTS} from generate_series(1, {ACCOUNTS}) as number;
create table transfer (number integer, job_id uuid, attempt integer, cents bigint);
"""


class Transfer(msgspec.Struct):
    """What a job of the bank is told."""

    number: int
    source: int
    target: int
    cents: int
    for_s: float = 0.0
    """How long it takes from one account to the other."""
    gate_inside: str = ""
    gate_after: str = ""


def register_bank(app: Chronos, evidence: Evidence) -> None:
    """The handler of transfers, and the same without the fence."""

    @app.handler("transfer", backoff=Fixed(0.05))
    async def transfer(job: Job, order: Transfer) -> None:
        await evidence.add(job, "start")
        transaction = job.transaction()
        async with transaction as connection:
            await move(connection, job, order)
            transaction.end_with({"attempt": job.attempt, "pid": os.getpid()})
        await wait_at(order.gate_after, job.attempt)

    @app.handler("transfer without a fence")
    async def transfer_without(job: Job, order: Transfer) -> object:
        await evidence.add(job, "start")
        async with evidence.pool.acquire() as connection, connection.transaction():
            await move(cast("Connection", connection), job, order)
        await wait_at(order.gate_after, job.attempt)
        return {"attempt": job.attempt, "pid": os.getpid()}


async def move(connection: Connection, job: Job, order: Transfer) -> None:
    """Move the money and write that down; both accounts are locked in one order."""
    await wait_at(order.gate_inside, job.attempt)
    await connection.execute(
        "select from account where number in ($1, $2) order by number for update",
        order.source,
        order.target,
    )
    change = "update account set cents = cents + $2 where number = $1"
    await connection.execute(change, order.source, -order.cents)
    await anyio.sleep(order.for_s)
    await connection.execute(change, order.target, order.cents)
    await connection.execute(
        "insert into transfer values ($1, $2, $3, $4)",
        order.number,
        job.id,
        job.attempt,
        order.cents,
    )


@dataclass
class Books:
    """What an auditor finds who looks at the tables alone."""

    cents: int
    expected_cents: dict[int, int]
    actual_cents: dict[int, int]
    missing: list[int]
    doubled: list[int]

    @property
    def are_right(self) -> bool:
        """Every transfer made exactly once, and on both of its sides."""
        return (
            self.cents == ACCOUNTS * OPENING_CENTS
            and self.expected_cents == self.actual_cents
            and not self.missing
            and not self.doubled
        )


class Bank:
    """Gives transfers as jobs, and audits."""

    def __init__(self, client: Client, pool: asyncpg.Pool, dice: random.Random) -> None:
        self._client = client
        self._pool = pool
        self.dice = dice
        self.orders: list[Transfer] = []

    async def open(self) -> None:
        await self._pool.execute(TABLES)

    async def order(self, count: int, kind: str = "transfer", **changes: object) -> list[UUID]:
        """Enqueue transfers between any two accounts."""
        orders = [self._draw(len(self.orders) + place, changes) for place in range(count)]
        jobs = [self._client.job(kind, order, max_attempts=100) for order in orders]
        enqueued = await self._client.enqueue_many(jobs)
        self.orders += orders
        return [one.id for one in enqueued]

    def _draw(self, number: int, changes: dict[str, object]) -> Transfer:
        source, target = self.dice.sample(range(1, ACCOUNTS + 1), 2)
        order = Transfer(number, source, target, self.dice.randint(1, 500))
        return msgspec.structs.replace(order, **changes)

    async def made(self) -> int:
        """How many transfers are on the books."""
        count: int = await self._pool.fetchval("select count(*) from transfer")
        return count

    async def audit(self) -> Books:
        """The accounts beside what the orders say they must be."""
        rows = await self._pool.fetch("select number, cents from account")
        actual = {row["number"]: row["cents"] for row in rows}
        expected = dict.fromkeys(range(1, ACCOUNTS + 1), OPENING_CENTS)
        for order in self.orders:
            expected[order.source] -= order.cents
            expected[order.target] += order.cents
        made = [row["number"] for row in await self._pool.fetch("select number from transfer")]
        return Books(
            cents=sum(actual.values()),
            expected_cents=expected,
            actual_cents=actual,
            missing=sorted({order.number for order in self.orders} - set(made)),
            doubled=sorted({number for number in made if made.count(number) > 1}),
        )
