"""Workers die at random while schedules fire: every occurrence fires once, and none is missing.

`CHRONOS_CRASH_SECONDS=120` is the full run; the default is long enough for dozens of deaths.
"""

import os
import random
from datetime import datetime, timedelta

import anyio
import pytest

from chronos_runtime.client import Client
from chronos_runtime.definitions import ScheduleOptions
from tests.crash.checker import LOOK_S
from tests.crash.fleet import Fleet
from tests.crash.occurrences import RAN, Plan, ScheduleChecker, next_step
from tests.crash.say import Say
from tests.crash.test_storm import chosen_seed

pytestmark = pytest.mark.crash

SECONDS = float(os.environ.get("CHRONOS_CRASH_SECONDS") or 30)
LEAD_S = 5  # Before the first occurrence, for two hundred schedules to be added.
WORKERS = 5
RUNS_A_KILL = (20, 120)  # At about 100 fires a second: one death in 0.2 to 1.2 s.
PATIENCE = 1_000  # Attempts: more than there are kills.


def make_plans(first_at: datetime, last_at: datetime) -> list[Plan]:
    """Two hundred: fifty each second, fifty each few, fifty that catch up with one, fifty slow."""
    minute = next_step(first_at, 60)
    return [
        *(Plan(f"second {n}", 1, first_at, last_at, is_cron=n % 2 == 0) for n in range(50)),
        *(Plan(f"few {n}", 2 + n % 6, first_at, last_at) for n in range(50)),
        *(Plan(f"one {n}", 1 + n % 3, first_at, last_at, catches_all=False) for n in range(50)),
        *(Plan(f"slow {n}", 60 + 30 * n, first_at, last_at) for n in range(25)),
        *(Plan(f"minute {n}", 60, minute, None, is_cron=True) for n in range(25)),
    ]


async def add_schedule(client: Client, plan: Plan) -> None:
    options: ScheduleOptions = {
        "ends_at": plan.last_at,
        "catch_up": "all" if plan.catches_all else "one",
        "catch_up_max": 1_000,
        "max_attempts": PATIENCE,
    }
    if plan.is_cron:
        options["cron"] = "* * * * * *" if plan.every_s == 1 else "* * * * *"
        options["starts_at"] = plan.first_at
    else:
        options["every_s"] = plan.every_s
        options["anchor"] = plan.first_at
    await client.schedules.add(plan.name, "tick", **options)


async def kill_until(
    fleet: Fleet, checker: ScheduleChecker, dice: random.Random, last_at: datetime
) -> int:
    """Kill and replace workers until the last occurrence; how many died."""
    killed = 0
    while await checker.now() < last_at:
        start_until_full(fleet)
        await checker.wait_ran(await checker.ran() + dice.randint(*RUNS_A_KILL))
        dice.choice(fleet.alive).kill()
        killed += 1
    start_until_full(fleet)
    return killed


def start_until_full(fleet: Fleet) -> None:
    while len(fleet.alive) < WORKERS:
        fleet.start()


async def prune(checker: ScheduleChecker) -> None:
    """Forget every ended job as soon as it has ended: history guards nobody."""
    while True:
        await checker.queue.execute("delete from chronos.job_history")
        await anyio.sleep(LOOK_S)


@pytest.mark.parametrize("is_pruned", [False, True], ids=["history kept", "history pruned"])
async def test_every_occurrence_fires_exactly_once_though_workers_die_all_the_time(
    client: Client,
    schedules: ScheduleChecker,
    fleet: Fleet,
    say: Say,
    is_pruned: bool,
) -> None:
    seed = chosen_seed()
    say(f"CHRONOS_CRASH_SEED={seed}")
    first_at = next_step(await schedules.now() + timedelta(seconds=LEAD_S), 1)
    last_at = first_at + timedelta(seconds=SECONDS)
    plans = make_plans(first_at, last_at)
    async with anyio.create_task_group() as tasks:
        if is_pruned:
            tasks.start_soon(prune, schedules)
        for plan in plans:
            await add_schedule(client, plan)
        killed = await kill_until(fleet, schedules, random.Random(seed), last_at)
        await schedules.wait_finished()
        for plan in plans:
            if plan.last_at is None:
                await client.schedules.pause(plan.name)
        await schedules.wait_drained()
        tasks.cancel_scope.cancel()

    runs = await schedules.runs_of_fires()
    say(f"{len(plans)} schedules, {SECONDS:g} s, {killed} workers killed;")
    say(f"{sum(runs.values())} fires, by how often they ran: {dict(sorted(runs.items()))}")
    assert await schedules.faults(plans, fires=RAN) == {}
    assert await schedules.fired_again() == []
    if not is_pruned:
        assert await schedules.faults(plans) == {}
