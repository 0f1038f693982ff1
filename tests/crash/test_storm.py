"""Workers die and freeze, sessions are cut, at random; every job ends exactly once all the same."""

import os
import random
from collections import Counter
from uuid import UUID

import pytest

from chronos_runtime.client import Client
from tests.crash.checker import Checker
from tests.crash.fleet import Fleet, WorkerProcess
from tests.crash.producer import enqueue
from tests.crash.say import Say

pytestmark = pytest.mark.crash

WORKERS = 3
ROUNDS = 20  # One kill each.
QUICK_A_ROUND = 140
FREEZES = 5
CUTS_A_ROUND = 3
FROZEN_ROUNDS = (3, 6)  # A round takes about a second, a lease lasts three.

# More attempts than there are kills: only what always fails may end dead.
PATIENCE = 2 * ROUNDS
FAIL_ATTEMPTS = 3
ENDS = {"quick": "succeeded", "snooze": "succeeded", "fail": "dead", "cancel": "cancelled"}

# Of the workers only: the producer's own would have to be sent again.
CUT_SESSIONS = """
select pg_terminate_backend(pid) from pg_stat_activity
where datname = current_database() and application_name = 'chronos-runtime'
  and query not like '-- Inserts jobs%'
order by random() limit $1
"""


def chosen_seed() -> int:
    """`CHRONOS_CRASH_SEED` runs the same choices again, though never the same instants."""
    given = os.environ.get("CHRONOS_CRASH_SEED")
    return int(given) if given else random.randrange(1_000_000)


async def enqueue_round(client: Client) -> list[UUID]:
    return [
        *await enqueue(client, "quick", QUICK_A_ROUND, {"for_s": 0.01}, max_attempts=PATIENCE),
        *await enqueue(client, "snooze", 4, max_attempts=PATIENCE),
        *await enqueue(client, "cancel", 3, max_attempts=PATIENCE),
        *await enqueue(client, "fail", 3, max_attempts=FAIL_ATTEMPTS),
    ]


def start_until_full(fleet: Fleet) -> None:
    while len(fleet.alive) < WORKERS:
        fleet.start(executor={"concurrency": 10})


async def test_every_job_ends_exactly_once_though_workers_die_all_the_time(
    client: Client, checker: Checker, fleet: Fleet, say: Say
) -> None:
    seed = chosen_seed()
    say(f"CHRONOS_CRASH_SEED={seed}")
    dice = random.Random(seed)
    freezing_rounds = set(dice.sample(range(ROUNDS), FREEZES))
    frozen: dict[WorkerProcess, int] = {}  # With the round in which each thaws.
    ids: list[UUID] = []
    for turn in range(ROUNDS):
        start_until_full(fleet)
        before = await checker.started()
        ids += await enqueue_round(client)
        await checker.wait_started(before + dice.randint(1, QUICK_A_ROUND))
        for worker in [one for one, thaws_in in frozen.items() if thaws_in == turn]:
            worker.thaw()
            del frozen[worker]
        if turn in freezing_rounds and not frozen:
            worker = dice.choice(fleet.alive)
            worker.freeze()
            frozen[worker] = turn + dice.randint(*FROZEN_ROUNDS)
        await checker.queue.execute(CUT_SESSIONS, CUTS_A_ROUND)
        dice.choice([worker for worker in fleet.alive if worker not in frozen]).kill()

    for worker in frozen:
        worker.thaw()
    start_until_full(fleet)
    await checker.wait_drained()

    report = await checker.report(ids)
    attempts = Counter(row["attempt"] for row in report.history.values())
    say(f"{len(ids)} jobs, {len(fleet.workers)} workers started, {ROUNDS} of them killed;")
    say(f"handlers started {sum(report.starts.values())} times; jobs by attempts: {attempts}")
    assert report.faults == {}
    assert len(report.history) == len(ids)
    for row in report.history.values():
        assert row["state"] == ENDS[row["kind"]]
