"""Many workers on one queue do not get into each other's way."""

import pytest

from chronos_runtime.client import Client
from tests.crash.checker import DEADLINE_S, Checker
from tests.crash.fleet import PATIENT, Fleet
from tests.crash.producer import enqueue
from tests.eventually import eventually

pytestmark = pytest.mark.crash

WORKERS = 8
JOBS = 2_000

ACCIDENTS = """
select xact_rollback, deadlocks, conflicts
from pg_stat_database
where datname = current_database()
"""


async def test_eight_workers_share_two_thousand_jobs_without_one_rollback(
    checker: Checker, fleet: Fleet
) -> None:
    before = await checker.queue.fetchrow(ACCIDENTS)
    workers = [fleet.start(heartbeater=PATIENT) for _ in range(WORKERS)]
    for worker in workers:
        await worker.is_up()
    async with Client.connect(fleet.dsn) as client:
        ids = await enqueue(client, "quick", JOBS, {"for_s": 0.02})
    await checker.wait_drained()
    for worker in workers:
        worker.terminate()
    assert [await worker.exit_code() for worker in workers] == [0] * WORKERS

    report = await checker.report(ids)
    assert report.faults == {}
    assert report.states == {"succeeded": JOBS}
    assert {row["attempt"] for row in report.history.values()} == {1}
    # A session's counts are in when it has ended, at the latest.
    await eventually(lambda: are_gone(checker), DEADLINE_S)
    assert await checker.queue.fetchrow(ACCIDENTS) == before
    shares = {pid for pids in report.starters.values() for pid in pids}
    assert len(shares) > 1, "more than one worker took part"


async def are_gone(checker: Checker) -> bool:
    sessions: int = await checker.queue.fetchval(
        "select count(*) from pg_stat_activity"
        " where datname = current_database() and application_name = 'chronos-runtime'"
    )
    return sessions == 0
