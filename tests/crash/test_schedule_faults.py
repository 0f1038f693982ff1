"""A scheduler dies, or is lied to, at the worst instant: each occurrence fires once."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path

import asyncpg
import pytest

from chronos_runtime.client import Client
from chronos_runtime.schedule import CatchUp
from tests.crash.checker import DEADLINE_S
from tests.crash.fleet import Fleet, WorkerProcess
from tests.crash.occurrences import FIRES, RAN, Plan, ScheduleChecker, next_step
from tests.crash.proxy import Proxy, Trap, open_proxy
from tests.crash.say import Say
from tests.eventually import eventually

pytestmark = pytest.mark.crash

LOOK = "-- Schedules to fire"
FIRE = "-- Fires schedules"

SCHEDULES = 20
AGO = timedelta(seconds=20)
AHEAD = timedelta(seconds=5)
DOWN = timedelta(days=3)

# The fire stops where its first job goes in: its schedules are locked, nothing is committed.
HALT = """
create function halt() returns trigger language plpgsql as $$
begin
    perform pg_advisory_xact_lock_shared(1);
    return new;
end $$;
create trigger halt before insert on chronos.jobs for each row execute function halt()
"""
HALTED = """
select activity.pid from pg_stat_activity as activity
where activity.datname = current_database() and activity.wait_event = 'advisory'
  and starts_with(activity.query, $1)
"""


@pytest.fixture
async def proxy(dsn: str, anyio_backend: object) -> AsyncIterator[Proxy]:
    """Between the workers and the database of `dsn`; the checker goes past it."""
    async with open_proxy(dsn) as proxy:
        yield proxy


@pytest.fixture
async def plans(client: Client, schedules: ScheduleChecker) -> list[Plan]:
    """Schedules that are due each second, since a while, and end soon."""
    now = next_step(await schedules.now(), 1)
    plans = [Plan(f"s{n}", 1, now - AGO, now + AHEAD) for n in range(SCHEDULES)]
    for plan in plans:
        await add_schedule(client, schedules, plan)
    return plans


async def add_schedule(
    client: Client, checker: ScheduleChecker, plan: Plan, catch_up: CatchUp = "all"
) -> None:
    """A schedule that nobody has fired since its first occurrence."""
    await client.schedules.add(
        plan.name,
        "tick",
        every_s=plan.every_s,
        anchor=plan.first_at,
        ends_at=plan.last_at,
        catch_up=catch_up,
        catch_up_max=1_000,
    )
    await checker.queue.execute(
        "update chronos.schedules set next_run_at = $2 where name = $1", plan.name, plan.first_at
    )


async def is_sprung(trap: Trap) -> None:
    await eventually(lambda: trap.sprung, DEADLINE_S)


@asynccontextmanager
async def halted_fire(dsn: str, fleet: Fleet) -> AsyncIterator[tuple[asyncpg.Connection, int]]:
    """A worker killed inside its fire: who lets it go on, and the session left behind."""
    holder = await asyncpg.connect(dsn)
    try:
        await holder.execute(HALT)
        await holder.execute("select pg_advisory_lock(1)")
        worker = fleet.start()

        async def halted() -> int | None:
            pid: int | None = await holder.fetchval(HALTED, FIRE)
            return pid

        pid = await eventually(halted, DEADLINE_S)
        assert pid is not None
        worker.kill()
        yield holder, pid
    finally:
        await holder.close()


@pytest.mark.parametrize("mark", [LOOK, FIRE], ids=["before", "after"])
async def test_a_scheduler_killed_before_or_after_its_fire_neither_loses_nor_doubles_it(
    schedules: ScheduleChecker,
    fleet: Fleet,
    proxy: Proxy,
    plans: list[Plan],
    mark: str,
) -> None:
    reply = proxy.delay(mark, {1})  # The work is done, and the news of it is held back.
    worker = fleet.start(dsn=proxy.dsn)
    await is_sprung(reply)
    worker.kill()
    assert bool(await schedules.queue.fetch(FIRES)) == (mark == FIRE)
    fleet.start()
    await schedules.wait_finished()
    assert await schedules.faults(plans) == {}
    assert await schedules.faults(plans, fires=RAN) == {}
    assert await schedules.fired_again() == []


@pytest.mark.parametrize("is_rolled_back", [True, False], ids=["rolled back", "committed"])
async def test_a_scheduler_killed_inside_its_fire_neither_loses_nor_doubles_it(
    schedules: ScheduleChecker,
    fleet: Fleet,
    dsn: str,
    plans: list[Plan],
    is_rolled_back: bool,
) -> None:
    async with halted_fire(dsn, fleet) as (holder, pid):
        assert await schedules.queue.fetch(FIRES) == []
        if is_rolled_back:
            await holder.execute("select pg_terminate_backend($1)", pid)
        # What was not rolled back goes on and commits, though nobody is there to hear of it.
        await holder.execute("select pg_advisory_unlock(1)")
        fleet.start()
        await schedules.wait_finished()
    assert await schedules.faults(plans) == {}
    assert await schedules.faults(plans, fires=RAN) == {}
    assert await schedules.fired_again() == []


async def test_a_fire_whose_reply_was_lost_happened_once(
    schedules: ScheduleChecker,
    fleet: Fleet,
    proxy: Proxy,
    plans: list[Plan],
) -> None:
    trap = proxy.swallow(FIRE, {1, 2})
    worker = fleet.start(dsn=proxy.dsn)
    await schedules.wait_finished()
    assert trap.sprung == 2
    assert worker.is_alive
    assert await schedules.faults(plans) == {}


def faketime_library() -> Path | None:
    folders = [Path("/usr/lib"), Path("/usr/lib64"), Path("/usr/local/lib")]
    found = (path for folder in folders for path in folder.glob("**/libfaketime.so.1"))
    return next(found, None)


def wrong_by_s(worker: WorkerProcess) -> float:
    """How far its clock, by its log, is from the one of the file its log stands in."""
    return float(worker.log()[-1]["at"]) - worker.log_path.stat().st_mtime


async def test_processes_whose_clocks_are_wrong_by_an_hour_fire_by_that_of_the_database(
    client: Client,
    schedules: ScheduleChecker,
    fleet: Fleet,
    plans: list[Plan],
    say: Say,
) -> None:
    library = faketime_library()
    if library is None:
        pytest.skip("libfaketime is missing: apt-get install faketime")
    workers = [
        fleet.start(
            environment={
                "LD_PRELOAD": str(library),
                "FAKETIME": offset,
                "FAKETIME_DONT_FAKE_MONOTONIC": "1",
                "DONT_FAKE_MONOTONIC": "1",
            }
        )
        for offset in ("+3600s", "-3600s")
    ]
    for worker in workers:
        await worker.is_up()
    wrong = [wrong_by_s(worker) for worker in workers]
    say(f"clocks wrong by {wrong} s")
    assert wrong == pytest.approx([3600, -3600], abs=60)
    now = next_step(await schedules.now() + timedelta(seconds=1), 1)
    punctual = Plan("punctual", 1, now, now + timedelta(seconds=5))
    await add_schedule(client, schedules, punctual)
    await schedules.wait_finished()
    assert await schedules.faults([*plans, punctual]) == {}
    fires = await schedules.fires("punctual")
    late_s = [(fired_at - at).total_seconds() for at, fired_at in fires.items()]
    say(f"fires late by {late_s} s")
    assert min(late_s) >= 0
    assert max(late_s) < DEADLINE_S


@pytest.mark.parametrize(
    ("catch_up", "first_fires"), [("one", {1}), ("all", {1_000}), ("none", {60, 61})]
)
async def test_after_three_days_down_exactly_what_the_policy_says_fires(
    client: Client,
    schedules: ScheduleChecker,
    fleet: Fleet,
    catch_up: CatchUp,
    first_fires: set[int],
) -> None:
    now = next_step(await schedules.now(), 1)
    plan = Plan("s", 1, now - DOWN, now + timedelta(seconds=5))
    await add_schedule(client, schedules, plan, catch_up)
    fleet.start()
    await schedules.wait_finished()
    fires = await schedules.fires("s")
    first_at: datetime = min(fires.values())
    caught_up = sorted(at for at, fired_at in fires.items() if fired_at == first_at)
    assert len(caught_up) in first_fires
    assert timedelta(0) <= first_at - caught_up[-1] < timedelta(seconds=2), "not the newest"
    # From then on each second, and nothing left out in between.
    expected = {caught_up[0] + timedelta(seconds=n) for n in range(len(fires))}
    assert fires.keys() == expected
    assert max(fires) == plan.last_at
    skipped = await schedules.skipped("s")
    assert skipped + len(fires) == 3 * 24 * 3600 + 5 + 1
