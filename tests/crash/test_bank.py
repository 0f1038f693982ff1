"""Transfers of money as jobs: each happens exactly once, whatever is killed, frozen or cut."""

import functools
import random
from collections import Counter
from uuid import UUID

import pytest

from chronos_runtime.client import Client
from tests.crash.bank import Bank
from tests.crash.checker import DEADLINE_S, LOOK_S, Checker
from tests.crash.fleet import Fleet, Gate, WorkerProcess
from tests.crash.say import Say
from tests.crash.test_storm import chosen_seed
from tests.eventually import eventually

pytestmark = pytest.mark.crash

WORKERS = 3
ROUNDS = 16  # One kill each.
TRANSFERS_A_ROUND = 150
FREEZES = 6
HELD = 10  # As many as a worker runs at once.
STALE = "stale outcome rejected: the claim was lost"

# Every other worker's transactions outlive a freeze: then it is the fence that must hold. Those
# of the others are ended by the server, and their locks with them.
IDLE_S = (1.0, 60.0)


@pytest.fixture
async def bank(client: Client, checker: Checker, say: Say) -> Bank:
    """A bank in the database of the queue."""
    seed = chosen_seed()
    say(f"CHRONOS_CRASH_SEED={seed}")
    bank = Bank(client, checker.queue, random.Random(seed))
    await bank.open()
    return bank


def start_worker(fleet: Fleet) -> WorkerProcess:
    idle_s = IDLE_S[len(fleet.workers) % len(IDLE_S)]
    return fleet.start(executor={"concurrency": HELD}, database={"transaction_idle_s": idle_s})


async def held_by(checker: Checker, worker: WorkerProcess) -> set[UUID]:
    """The jobs whose lease is that worker's."""
    rows = await checker.queue.fetch(
        "select id from chronos.jobs where starts_with(lease_token::text, $1)",
        await worker.identity(),
    )
    return {row["id"] for row in rows}


async def find_busy(checker: Checker, fleet: Fleet) -> WorkerProcess | None:
    """A worker that holds jobs right now."""
    for worker in fleet.alive:
        if await held_by(checker, worker):
            return worker
    return None


async def keep_busy(
    bank: Bank, checker: Checker, fleet: Fleet, ids: list[UUID]
) -> WorkerProcess | None:
    """A worker that holds jobs right now; with nothing left to do, more is ordered."""
    if await checker.live() == 0:
        ids += await bank.order(TRANSFERS_A_ROUND, for_s=0.02)
    return await find_busy(checker, fleet)


async def freeze_past_its_lease(checker: Checker, worker: WorkerProcess) -> None:
    """Freeze a worker until others have taken over some of what it holds; then thaw it."""
    worker.freeze()
    held = await held_by(checker, worker)

    async def some_are_taken_over() -> bool:
        return not held or held != await held_by(checker, worker)

    await eventually(some_are_taken_over, DEADLINE_S, poll_s=LOOK_S)
    worker.thaw()


async def test_every_transfer_happens_exactly_once_though_workers_die_and_freeze_all_the_time(
    bank: Bank, checker: Checker, fleet: Fleet, say: Say
) -> None:
    dice = bank.dice
    freezing_rounds = set(dice.sample(range(ROUNDS), FREEZES))
    ids: list[UUID] = []
    for turn in range(ROUNDS):
        while len(fleet.alive) < WORKERS:
            start_worker(fleet)
        made = await bank.made()
        ids += await bank.order(TRANSFERS_A_ROUND, for_s=0.02)
        if turn in freezing_rounds:
            one_is_busy = functools.partial(keep_busy, bank, checker, fleet, ids)
            worker = await eventually(one_is_busy, DEADLINE_S, poll_s=LOOK_S)
            await freeze_past_its_lease(checker, worker)
        wanted = min(made + dice.randint(1, TRANSFERS_A_ROUND), len(ids))
        await eventually(functools.partial(has_made, bank, wanted), DEADLINE_S, poll_s=LOOK_S)
        dice.choice(fleet.alive).kill()

    start_worker(fleet)
    await checker.wait_drained()

    report, books = await checker.report(ids), await bank.audit()
    attempts = Counter(row["attempt"] for row in report.history.values())
    rejected = sum(line["message"] == STALE for one in fleet.workers for line in one.log())
    say(f"{len(ids)} transfers, {ROUNDS} kills, {FREEZES} freezes; jobs by attempts: {attempts}")
    say(f"{rejected} outcomes of lost claims rejected, {books.cents} cents in all")
    assert report.faults == {}
    assert report.states == {"succeeded": len(ids)}
    assert books.are_right, books
    assert attempts.total() > attempts[1] > 0, "nothing was interrupted: this proved nothing"


async def has_made(bank: Bank, count: int) -> bool:
    return await bank.made() >= count


@pytest.mark.parametrize(
    ("kind", "doubled"), [("transfer", 0), ("transfer without a fence", HELD)], ids=str
)
async def test_only_a_fence_keeps_a_worker_frozen_after_its_commit_from_being_repeated(
    bank: Bank, checker: Checker, fleet: Fleet, *, gate: Gate, kind: str, doubled: int
) -> None:
    ids = await bank.order(HELD, kind, gate_after=gate.payload["gate"])
    zombie = start_worker(fleet)
    await eventually(lambda: has_made(bank, HELD), DEADLINE_S, poll_s=LOOK_S)
    zombie.freeze()
    start_worker(fleet)
    gate.open(attempt=2)
    await checker.wait_drained()
    gate.open()
    zombie.thaw()
    zombie.terminate()
    assert await zombie.exit_code() == 0

    books = await bank.audit()
    assert (len(books.doubled), books.missing) == (doubled, [])
    assert books.are_right == (doubled == 0)
    assert (await checker.report(ids)).faults == {}


async def test_a_worker_frozen_in_its_transactions_changes_nothing_when_it_thaws(
    bank: Bank, checker: Checker, fleet: Fleet, gate: Gate
) -> None:
    ids = await bank.order(HELD, gate_inside=gate.payload["gate"])
    zombie = fleet.start(executor={"concurrency": HELD}, database={"transaction_idle_s": 60.0})
    await checker.wait_started(HELD)
    await eventually(lambda: all_are_inside(checker), DEADLINE_S)
    zombie.freeze()
    owner = fleet.start(executor={"concurrency": HELD})
    await checker.wait_started(HELD, attempt=2)
    gate.open()
    await checker.wait_drained()
    zombie.thaw()
    zombie.terminate()
    assert await zombie.exit_code() == 0

    report, books = await checker.report(ids), await bank.audit()
    assert report.faults == {}
    assert [row["result"] for row in report.history.values()] == [
        {"attempt": 2, "pid": owner.pid}
    ] * HELD
    assert books.are_right, books
    assert zombie.said(STALE)


async def all_are_inside(checker: Checker) -> bool:
    count: int = await checker.queue.fetchval(
        "select count(*) from pg_stat_activity where state = 'idle in transaction'"
        " and datname = current_database()"
    )
    return count == HELD
