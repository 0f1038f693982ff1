"""A worker that is told to stop gives back what it did not start and finishes what it did."""

import time
from functools import partial

import pytest

from chronos_runtime.client import Client
from tests.crash.checker import DEADLINE_S, LOOK_S, Checker
from tests.crash.fleet import LEASE_S, PATIENT, Fleet, Gate
from tests.crash.producer import enqueue
from tests.crash.say import Say
from tests.eventually import eventually

pytestmark = pytest.mark.crash

PREFETCHED = 100

# One slot and a claimer that looks a day ahead: after a few quick jobs it takes all there is.
ONE_SLOT = {"concurrency": 1, "drain_s": 60.0}
GREEDY = {"ahead_s": 86_400.0}


async def test_jobs_claimed_but_not_started_are_ready_again_while_the_running_one_drains(
    client: Client, checker: Checker, fleet: Fleet, gate: Gate, say: Say
) -> None:
    warm_up = await enqueue(client, "quick", 50)
    (running,) = await enqueue(client, "hold", 1, gate.payload)
    waiting = await enqueue(client, "quick", PREFETCHED)
    worker = fleet.start(executor=ONE_SLOT, claimer=GREEDY, heartbeater=PATIENT)
    await checker.wait_started(len(warm_up) + 1)
    assert await checker.live("running") == 1 + PREFETCHED, "all of them are claimed"

    worker.terminate()
    told_at = time.monotonic()
    await eventually(lambda: is_given_back(checker), DEADLINE_S)
    say(f"{PREFETCHED} unstarted jobs were ready {time.monotonic() - told_at:.3f} s after SIGTERM")
    report = await checker.report([*warm_up, running, *waiting])
    assert report.faults == {}
    for id in waiting:
        assert report.live[id]["attempt"] == 0
        assert report.live[id]["errors"] == []
    assert report.live[running]["state"] == "running"

    gate.open()
    assert await worker.exit_code() == 0
    report = await checker.report([*warm_up, running, *waiting])
    assert report.faults == {}
    assert report.history[running]["state"] == "succeeded"
    assert report.attempts_started(running) == [1]
    assert report.states == {"succeeded": len(warm_up) + 1, "ready": PREFETCHED}


async def is_given_back(checker: Checker) -> bool:
    return await checker.live("ready") == PREFETCHED


async def test_a_job_that_outlasts_the_drain_is_ready_again_and_says_why(
    client: Client, checker: Checker, fleet: Fleet, gate: Gate
) -> None:
    (id,) = await enqueue(client, "hold", 1, gate.payload)
    worker = fleet.start(executor={"drain_s": 1.0}, heartbeater=PATIENT)
    await checker.wait_started(1)
    worker.terminate()
    assert await worker.exit_code() == 0

    report = await checker.report([id])
    assert report.faults == {}
    assert (report.live[id]["state"], report.live[id]["attempt"]) == ("ready", 1)
    (error,) = report.live[id]["errors"]
    assert error["type"] == "Interrupted"


async def test_a_second_signal_does_not_wait_and_the_job_is_taken_over(
    client: Client, checker: Checker, fleet: Fleet, gate: Gate
) -> None:
    (id,) = await enqueue(client, "hold", 1, gate.payload)
    worker = fleet.start(executor={"drain_s": 600.0})
    await checker.wait_started(1)
    worker.terminate()
    await eventually(lambda: worker.said("draining") and worker.is_alive, DEADLINE_S)
    worker.terminate()
    assert await worker.exit_code() == 130
    fleet.start()
    await checker.wait_started(1, attempt=2)
    gate.open()
    await checker.wait_drained()
    report = await checker.report([id])
    assert report.faults == {}
    assert report.attempts_started(id) == [1, 2]


async def test_beats_go_on_until_the_last_job_of_a_drain_has_ended(
    client: Client, checker: Checker, fleet: Fleet, gate: Gate
) -> None:
    (id,) = await enqueue(client, "hold", 1, gate.payload)
    worker = fleet.start(executor={"drain_s": 600.0})
    await checker.wait_started(1)
    thief = fleet.start()
    await thief.is_up()
    worker.terminate()

    async def five_leases_have_passed() -> bool:
        passed: bool = await checker.evidence.fetchval(
            "select clock_timestamp() > min(at) + make_interval(secs => $1) from evidence",
            5 * LEASE_S,
        )
        return passed

    await eventually(five_leases_have_passed, DEADLINE_S, poll_s=LOOK_S)
    gate.open()
    assert await worker.exit_code() == 0
    await checker.wait_drained()
    report = await checker.report([id])
    assert report.faults == {}
    assert report.attempts_started(id) == [1]
    assert report.history[id]["result"] == {"attempt": 1, "pid": worker.pid}
    assert report.history[id]["errors"] == []


async def test_a_worker_told_to_stop_while_it_starts_ends_by_itself(
    checker: Checker, fleet: Fleet
) -> None:
    workers = [fleet.start() for _ in range(4)]
    for worker in workers:
        await eventually(partial(worker.said, "up"), DEADLINE_S)
        worker.terminate()
    for worker in workers:
        assert await worker.exit_code() == 0
