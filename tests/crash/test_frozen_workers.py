"""A worker that is frozen past its leases, and thaws, changes nothing that others now own."""

from uuid import UUID

import pytest

from chronos_runtime.client import Client
from tests.crash.checker import DEADLINE_S, LOOK_S, Checker, Report
from tests.crash.fleet import Fleet, Gate
from tests.crash.producer import enqueue
from tests.eventually import eventually

pytestmark = pytest.mark.crash

HELD = 20
STALE = "chronos_reporter_stale_jobs_total"
REAPED = "chronos_watchdog_reaped_jobs_total"


@pytest.mark.parametrize("zombie_finishes", [True, False], ids=["finishes", "still runs"])
async def test_nothing_a_thawed_worker_writes_is_accepted_and_it_goes_on_with_new_jobs(
    client: Client, checker: Checker, fleet: Fleet, gate: Gate, zombie_finishes: bool
) -> None:
    ids = await enqueue(client, "hold", HELD, gate.payload)
    zombie = fleet.start()
    await checker.wait_started(HELD)
    owner = fleet.start()
    owner_identity = await owner.identity()
    zombie.freeze()
    await checker.wait_started(HELD, attempt=2)

    if zombie_finishes:
        gate.open(attempt=1)  # The first thing it does when it thaws is to write its results.
    zombie.thaw()

    async def all_is_rejected_or_something_accepted() -> bool:
        rejected = (await zombie.metrics())[STALE]
        return rejected >= HELD or await checker.live("running") < HELD

    await eventually(all_is_rejected_or_something_accepted, DEADLINE_S, poll_s=LOOK_S)
    assert await checker.live("running") == HELD, "the owner still runs them all"
    gate.open(attempt=2)
    await checker.wait_drained()

    report = await checker.report(ids)
    assert report.faults == {}
    assert report.states == {"succeeded": HELD}
    for id in ids:
        row = report.history[id]
        assert row["attempt"] == 2
        assert str(row["lease_token"]).startswith(owner_identity)
        assert row["result"] == {"attempt": 2, "pid": owner.pid}

    owner.terminate()
    assert await owner.exit_code() == 0
    fresh = await enqueue(client, "quick", HELD)
    await checker.wait_drained()
    report = await checker.report([*ids, *fresh])
    assert report.faults == {}
    assert [report.history[id]["result"] for id in fresh] == [
        {"attempt": 1, "pid": zombie.pid}
    ] * HELD


async def test_a_worker_that_reaps_itself_after_a_freeze_accepts_each_job_once(
    client: Client, checker: Checker, fleet: Fleet, gate: Gate
) -> None:
    ids = await enqueue(client, "hold", HELD, gate.payload)
    worker = fleet.start(watchdog={"interval_s": 0.02})
    await checker.wait_started(HELD)
    await wait_first_beat(checker)
    worker.freeze()
    await checker.wait_expired()
    # Without its connection the first beat after the thaw fails, and the watchdog comes first.
    await cut_heartbeater(checker)
    worker.thaw()
    await worker.wait_metric(REAPED, lambda jobs: jobs >= HELD)
    await worker.wait_metric(STALE, lambda jobs: jobs >= HELD)
    gate.open()
    await checker.wait_drained()

    report = await checker.report(ids)
    assert report.faults == {}
    assert report.states == {"succeeded": HELD}
    assert_every_attempt_ran(report, ids)


def assert_every_attempt_ran(report: Report, ids: list[UUID]) -> None:
    """No attempt was used up without a start."""
    for id in ids:
        attempt = report.history[id]["attempt"]
        assert report.attempts_started(id) == list(range(1, attempt + 1))


HEARTBEATER = "datname = current_database() and query like '-- One beat%'"


async def wait_first_beat(checker: Checker) -> None:
    async def has_beaten() -> bool:
        beats: int = await checker.queue.fetchval(
            f"select count(*) from pg_stat_activity where {HEARTBEATER}"
        )
        return beats > 0

    await eventually(has_beaten, DEADLINE_S, poll_s=LOOK_S)


async def cut_heartbeater(checker: Checker) -> None:
    cut = await checker.queue.fetch(
        f"select pg_terminate_backend(pid) from pg_stat_activity where {HEARTBEATER}"
    )
    assert len(cut) == 1
