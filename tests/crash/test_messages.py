"""Workers that send are killed, frozen and cut off at every step: what is left is one fact.

A message is sent twice only where the death lies between the provider's yes and our commit, and
then both have one Message-ID, or one idempotency key.
"""

import functools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio.to_thread
import asyncpg
import pytest

from chronos_runtime.client import Client
from chronos_runtime.embedded import EmbeddedPostgres
from tests.crash.checker import DEADLINE_S, LOOK_S, Checker
from tests.crash.fleet import LEASE_S, Fleet, Gate
from tests.crash.held import AFTER_COMMIT, AFTER_SEND, BEFORE_SEND
from tests.crash.post_office import (
    ACCEPTED,
    ADDRESSED,
    BUSY_WORDS,
    HANDED_OVER,
    Mails,
    PostOffice,
    Texts,
)
from tests.crash.say import Say
from tests.eventually import eventually
from tests.processors.post import IN_BEFORE, IN_COMMIT, IN_RECORD

pytestmark = pytest.mark.crash

SHORT = {"lease_s": LEASE_S, "interval_s": LEASE_S / 3}
STALE = "stale outcome rejected: the claim was lost"
KILLS = 5
SORTS_A_KILL = 10  # Times eight messages.
NOT_YET = "not recorded yet, trying again: "


@asynccontextmanager
async def open_office(client: Client, checker: Checker, fleet: Fleet) -> AsyncIterator[PostOffice]:
    with Mails().serve() as mails:
        async with Texts().serve() as texts:
            assert isinstance(mails, Mails)
            assert isinstance(texts, Texts)
            office = PostOffice(client, checker, fleet, mails, texts)
            await office.open()
            yield office
            fleet.end()  # Before the providers go, so that nobody misses them.


@pytest.fixture
async def office(client: Client, checker: Checker, fleet: Fleet) -> AsyncIterator[PostOffice]:
    """A post office in the database of the queue."""
    async with open_office(client, checker, fleet) as office:
        yield office


@pytest.fixture
async def crash_office(
    crash_client: Client, crash_checker: Checker, crash_fleet: Fleet
) -> AsyncIterator[PostOffice]:
    """One in a database that can be taken away."""
    async with open_office(crash_client, crash_checker, crash_fleet) as office:
        yield office


@asynccontextmanager
async def locked(checker: Checker, *statements: str) -> AsyncIterator[None]:
    """Hold what a transaction of these statements locks, for as long as the block takes."""
    async with checker.queue.acquire() as holder, holder.transaction():
        for statement in statements:
            await holder.execute(statement)
        yield


def lock(number: int) -> str:
    return f"select pg_advisory_xact_lock({number})"


async def test_killed_before_its_first_hook_a_task_is_sent_once(office: PostOffice) -> None:
    await office.order()
    async with locked(office.checker, "lock table chronos.allowed_functions"):
        victim = office.start(lease=SHORT)
        await office.all_wait_for_a_lock()
        victim.kill()
    office.start()
    await office.judge(sends=1, runs=2)


@pytest.mark.parametrize(
    ("number", "sends", "runs"),
    [(IN_BEFORE, 1, 2), (IN_RECORD, 2, 2), (IN_COMMIT, 1, 1)],
    ids=["before_handler", "recording", "commit"],
)
async def test_killed_in_a_hook_a_task_leaves_one_fact(
    office: PostOffice, number: int, sends: int, runs: int
) -> None:
    """A commit that has reached the server is carried out, whoever dies."""
    await office.order()
    async with locked(office.checker, lock(number)):
        victim = office.start(lease=SHORT)
        await office.all_wait_for_a_lock()
        victim.kill()
    office.start()
    await office.judge(sends=sends, runs=runs)


async def test_killed_between_its_fact_and_its_end_a_task_leaves_one_fact(
    office: PostOffice,
) -> None:
    await office.order()
    async with locked(office.checker, lock(IN_RECORD)):
        victim = office.start(lease=SHORT)
        await office.all_wait_for_a_lock()
        rows = locked(office.checker, "select from chronos.jobs for update")
        await rows.__aenter__()
    await office.all_wait_for_a_lock()
    victim.kill()
    await rows.__aexit__(None, None, None)
    office.start()
    await office.judge(sends=2, runs=2)


@pytest.mark.parametrize(
    ("hold", "sends", "runs"),
    [(BEFORE_SEND, 1, 2), (AFTER_SEND, 2, 2), (AFTER_COMMIT, 1, 1)],
    ids=str,
)
async def test_killed_beside_its_send_a_task_leaves_one_fact(
    office: PostOffice, gate: Gate, hold: str, sends: int, runs: int
) -> None:
    await office.order()
    victim = office.start(lease=SHORT, hold=hold, gate=gate.payload["gate"])
    await office.all_are_at_the_gate(victim)
    victim.kill()
    office.start()
    await office.judge(sends=sends, runs=runs)


@pytest.mark.parametrize(
    ("when", "sends"), [(ADDRESSED, 1), (HANDED_OVER, 1), (ACCEPTED, 2)], ids=str
)
async def test_killed_while_the_provider_ponders_a_task_leaves_one_fact(
    office: PostOffice, when: str, sends: int
) -> None:
    office.mails.holds_when = office.texts.holds_when = when
    await office.order(with_refused=when == ADDRESSED)
    victim = office.start(lease=SHORT)
    await office.all_are_held_by_the_providers()
    victim.kill()
    office.mails.holds_when = office.texts.holds_when = ""
    office.start()
    await office.judge(sends=sends, runs=2)


async def test_killed_while_it_records_a_failure_that_passes_a_task_leaves_one_fact_an_attempt(
    office: PostOffice,
) -> None:
    office.mails.is_busy = office.texts.is_busy = True
    await office.order(with_refused=False, pause_s=3_600)
    async with locked(office.checker, lock(IN_RECORD)):
        victim = office.start(lease=SHORT)
        await office.all_wait_for_a_lock()
        victim.kill()
    second = office.start()

    async def all_wait_for_their_time() -> bool:
        return await office.checker.live("scheduled") == await office.checker.live() == 4

    await eventually(all_wait_for_their_time, DEADLINE_S, poll_s=LOOK_S)
    second.kill()
    office.mails.is_busy = office.texts.is_busy = False
    await office.checker.queue.execute("update chronos.jobs set run_at = now()")
    office.start()
    await office.checker.wait_drained()

    facts = await office.facts()
    for order in office.orders:
        line = await office.client.lineage(order.id)
        deferred, sent = ("failed", BUSY_WORDS[order.kind]), ("sent", "succeeded")
        told = {one.id: facts.of(one.id) for one in line}
        if order.is_supervised:
            first, again = line
            assert told == {first.id: [(1, *deferred)], again.id: [(2, *sent)]}
            assert facts.decided == facts.decided | {first.id: ["new_attempt"]}
            assert (first.attempt, again.attempt, again.retry_of) == (2, 1, first.id)
        else:
            assert told == {order.id: [(2, *deferred), (3, *sent)]}
        assert len(office.sends()[order.customer]) == 1
    assert facts.total == 8
    assert sum(map(len, facts.decided.values())) == 2


async def test_killed_after_its_last_send_a_task_ends_and_only_a_supervisor_is_told(
    office: PostOffice, gate: Gate
) -> None:
    """No hook can say what nobody knows: the queue's own record is all there is."""
    await office.order(with_refused=False, max_attempts=1)
    victim = office.start(lease=SHORT, hold=AFTER_SEND, gate=gate.payload["gate"])
    await office.all_are_at_the_gate(victim)
    victim.kill()
    office.start(hold=BEFORE_SEND, gate=gate.payload["gate"])  # New attempts wait there.

    async def all_have_ended() -> bool:
        return len((await office.facts()).decided) == 2 and await office.checker.live() == 2

    await eventually(all_have_ended, DEADLINE_S, poll_s=LOOK_S)
    facts = await office.facts()
    for order in office.orders:
        first, *later = await office.client.lineage(order.id)
        assert first.state == ("failed" if order.is_supervised else "dead")
        assert [error["type"] for error in first.errors] == ["LeaseExpired"]
        assert len(later) == order.is_supervised
        assert facts.decided.get(order.id, []) == ["new_attempt"] * order.is_supervised
        assert len(office.sends()[order.customer]) == 1
    assert facts.total == 0


async def test_messages_are_recorded_once_while_workers_die_all_the_time(
    office: PostOffice, say: Say
) -> None:
    office.mails.pace_s = office.texts.pace_s = 0.05  # So that a kill meets some under way.
    for _ in range(2):
        await office.start(lease=SHORT).is_up()
    for _ in range(KILLS):
        recorded = (await office.facts()).total
        for _ in range(SORTS_A_KILL):
            await office.order()
        await eventually(
            functools.partial(has_recorded, office, recorded + 20), DEADLINE_S, poll_s=LOOK_S
        )
        office.fleet.alive[0].kill()
        office.start(lease=SHORT)
    counted = await office.judge(sends=KILLS + 1, runs=KILLS + 1, is_sure=False)
    say(f"{len(office.orders)} messages, {KILLS} kills; by how often they were sent: {counted}")
    assert counted[1] < len(office.orders), "the kills hit something"


async def has_recorded(office: PostOffice, count: int) -> bool:
    return (await office.facts()).total >= count


async def test_frozen_after_its_send_a_worker_records_nothing_when_it_thaws(
    office: PostOffice, gate: Gate
) -> None:
    await office.order()
    zombie = office.start(lease=SHORT, hold=AFTER_SEND, gate=gate.payload["gate"])
    await office.all_are_at_the_gate(zombie)
    zombie.freeze()
    office.start()
    await office.checker.wait_drained()
    gate.open()
    zombie.thaw()
    zombie.terminate()
    assert await zombie.exit_code() == 0
    rejected = [line["job"] for line in zombie.log() if line["message"] == STALE]
    assert len(rejected) == len(office.orders), "each of them tried"
    await office.judge(sends=2, runs=2)


async def test_postgres_restarted_between_send_and_recording_costs_no_second_send(
    server: EmbeddedPostgres, crash_office: PostOffice, gate: Gate
) -> None:
    await crash_office.order()
    worker = crash_office.start(hold=AFTER_SEND, gate=gate.payload["gate"])
    await crash_office.all_are_at_the_gate(worker)
    await anyio.to_thread.run_sync(server.stop, "immediate")
    gate.open()
    await anyio.to_thread.run_sync(server.start)
    await crash_office.judge(sends=1, runs=1)
    assert worker.is_alive


async def test_postgres_away_for_longer_than_a_lease_after_the_send_leaves_one_fact(
    server: EmbeddedPostgres, crash_office: PostOffice, gate: Gate, say: Say
) -> None:
    await crash_office.order()
    worker = crash_office.start(lease=SHORT, hold=AFTER_SEND, gate=gate.payload["gate"])
    await crash_office.all_are_at_the_gate(worker)
    await anyio.to_thread.run_sync(server.stop, "immediate")
    gate.open()
    await anyio.sleep(2 * LEASE_S)  # The outage itself: nothing is waited for.
    await anyio.to_thread.run_sync(server.start)
    say(f"by how often they were sent: {await crash_office.judge(sends=2, runs=2, is_sure=False)}")
    assert worker.is_alive


async def test_postgres_restarted_in_the_recording_costs_no_second_send(
    server: EmbeddedPostgres, crash_office: PostOffice
) -> None:
    await crash_office.order()
    holder = await asyncpg.connect(server.dsn)
    await holder.execute(f"select pg_advisory_lock({IN_RECORD})")
    worker = crash_office.start()
    await crash_office.all_wait_for_a_lock()
    await anyio.to_thread.run_sync(server.restart, "immediate")  # The lock is gone with it.
    holder.terminate()
    await crash_office.judge(sends=1, runs=1)
    assert worker.is_alive
    tries = [line for line in worker.log() if line["message"].startswith(NOT_YET)]
    assert {line["job"] for line in tries} == {str(order.id) for order in crash_office.orders}
