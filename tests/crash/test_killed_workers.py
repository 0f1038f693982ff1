"""A worker that is killed loses nothing: others take over what it held."""

import pytest

from chronos_runtime.client import Client
from tests.crash.checker import DEADLINE_S, LOOK_S, Checker
from tests.crash.fleet import Fleet, Gate
from tests.crash.producer import enqueue
from tests.eventually import eventually

pytestmark = pytest.mark.crash

HELD = 100
CONCURRENCY = {"concurrency": HELD}


@pytest.mark.parametrize("heir_is_there_before", [True, False])
async def test_what_a_killed_worker_held_runs_again_once_and_finishes(
    client: Client, checker: Checker, fleet: Fleet, gate: Gate, heir_is_there_before: bool
) -> None:
    ids = await enqueue(client, "hold", HELD, gate.payload)
    victim = fleet.start(executor=CONCURRENCY)
    await checker.wait_started(HELD)
    if heir_is_there_before:
        heir = fleet.start(executor=CONCURRENCY)
        await heir.is_up()
        victim.kill()
    else:
        victim.kill()
        heir = fleet.start(executor=CONCURRENCY)

    await checker.wait_started(HELD, attempt=2)
    gate.open()
    await checker.wait_drained()

    report = await checker.report(ids)
    assert report.faults == {}
    assert report.states == {"succeeded": HELD}
    for id in ids:
        assert report.attempts_started(id) == [1, 2]
        (error,) = report.history[id]["errors"]
        assert error["message"] == "worker lease expired"
        assert report.history[id]["result"] == {"attempt": 2, "pid": heir.pid}


async def test_a_handler_that_kills_its_process_ends_dead_and_takes_nobody_along(
    client: Client, checker: Checker, fleet: Fleet
) -> None:
    bystanders = await enqueue(client, "quick", 60, {"for_s": 0.2}, max_attempts=20)
    (killer,) = await enqueue(client, "suicide", max_attempts=2)
    bystanders += await enqueue(client, "quick", 60, {"for_s": 0.2}, max_attempts=20)

    async def all_have_ended_while_the_dead_are_replaced() -> bool:
        while len(fleet.alive) < 2:
            fleet.start(executor={"concurrency": 10})
        return await checker.live() == 0

    await eventually(all_have_ended_while_the_dead_are_replaced, DEADLINE_S, poll_s=LOOK_S)

    report = await checker.report([*bystanders, killer])
    assert report.faults == {}
    assert report.states == {"succeeded": len(bystanders), "dead": 1}
    assert report.attempts_started(killer) == [1, 2]
    assert _messages(report.history[killer]["errors"]) == ["worker lease expired"] * 2
    assert len(fleet.workers) == 4, "two starts, two deaths, two replacements"


def _messages(errors: list[dict[str, str]]) -> list[str]:
    return [error["message"] for error in errors]
