"""A job that is handed over is as safe as one that was claimed, whatever becomes of the taker."""

import pytest

from chronos_runtime.client import Client
from tests.crash.checker import DEADLINE_S, LOOK_S, Checker
from tests.crash.fleet import PATIENT, Fleet, Gate
from tests.crash.producer import enqueue
from tests.eventually import eventually

pytestmark = pytest.mark.crash

TAKEN = "chronos_taker_rows_total"


async def wait_offers(checker: Checker, count: int) -> None:
    """Wait until so many workers that are there offer to take a job."""

    async def are_so_many() -> bool:
        present = await checker.queue.fetchval(
            "select count(*) from chronos.offers where presence in ("
            " select classid::bigint << 32 | objid::bigint from pg_locks"
            " where locktype = 'advisory')"
        )
        return bool(present == count)

    await eventually(are_so_many, DEADLINE_S, poll_s=LOOK_S)


async def test_jobs_after_a_kill_go_to_who_is_there_and_none_waits_for_a_lease(
    client: Client, checker: Checker, fleet: Fleet
) -> None:
    victim = fleet.start(heartbeater=PATIENT)
    await wait_offers(checker, 1)
    heir = fleet.start(heartbeater=PATIENT)
    await wait_offers(checker, 2)
    victim.kill()
    await wait_offers(checker, 1)
    ids = [id for _ in range(5) for id in await enqueue(client, "quick")]
    await checker.wait_drained()
    report = await checker.report(ids)
    assert report.faults == {}
    assert {id: report.history[id]["result"] for id in ids} == {
        id: {"attempt": 1, "pid": heir.pid} for id in ids
    }
    assert (await heir.metrics())[TAKEN] >= 1


async def test_a_job_handed_to_a_frozen_worker_is_taken_over_and_runs_once(
    client: Client, checker: Checker, fleet: Fleet
) -> None:
    frozen = fleet.start()
    await wait_offers(checker, 1)
    frozen.freeze()
    ids = await enqueue(client, "quick")
    assert await checker.live("running") == 1, "handed over"
    heir = fleet.start()
    await checker.wait_drained()
    frozen.thaw()
    fresh = await enqueue(client, "quick", 20)
    await checker.wait_drained()
    report = await checker.report([*ids, *fresh])
    assert report.faults == {}
    assert report.attempts_started(ids[0]) == [2]
    assert report.history[ids[0]]["result"] == {"attempt": 2, "pid": heir.pid}


async def test_a_job_handed_over_just_before_a_kill_runs_elsewhere(
    client: Client, checker: Checker, fleet: Fleet, gate: Gate
) -> None:
    victim = fleet.start()
    await wait_offers(checker, 1)
    ids = await enqueue(client, "hold", 1, gate.payload)
    await checker.wait_started(1)
    assert (await victim.metrics())[TAKEN] == 1
    victim.kill()
    gate.open()
    heir = fleet.start()
    await checker.wait_drained()
    report = await checker.report(ids)
    assert report.faults == {}
    assert report.history[ids[0]]["result"] == {"attempt": 2, "pid": heir.pid}


async def test_a_worker_that_drains_is_handed_nothing_more(
    client: Client, checker: Checker, fleet: Fleet, gate: Gate
) -> None:
    leaving = fleet.start(heartbeater=PATIENT)
    await wait_offers(checker, 1)
    held = await enqueue(client, "hold", 2, gate.payload)  # Claimed: what is offered stays out.
    await checker.wait_started(2)
    await wait_offers(checker, 1)
    leaving.terminate()
    await wait_offers(checker, 0)
    ids = await enqueue(client, "quick")
    assert await checker.live("ready") == 1
    gate.open()
    assert await leaving.exit_code() == 0
    heir = fleet.start(heartbeater=PATIENT)
    await checker.wait_drained()
    report = await checker.report([*held, *ids])
    assert report.faults == {}
    assert report.history[ids[0]]["result"] == {"attempt": 1, "pid": heir.pid}
