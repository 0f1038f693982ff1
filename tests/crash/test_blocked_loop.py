"""A handler that blocks the event loop loses nobody's lease, and is named."""

import pytest

from chronos_runtime.client import Client
from tests.crash.checker import Checker
from tests.crash.fleet import LEASE_S, Fleet, Gate
from tests.crash.producer import enqueue

pytestmark = pytest.mark.crash

NEIGHBOURS = 20


async def test_a_loop_blocked_for_three_leases_costs_no_neighbour_its_lease(
    client: Client, checker: Checker, fleet: Fleet, gate: Gate
) -> None:
    neighbours = await enqueue(client, "hold", NEIGHBOURS, gate.payload)
    worker = fleet.start()
    await checker.wait_started(NEIGHBOURS)
    (blocker,) = await enqueue(client, "block", 1, {"for_s": 3 * LEASE_S})
    await checker.wait_started(NEIGHBOURS + 1)
    thief = fleet.start()  # Its own watchdog sleeps with its loop; this one would reap.
    await thief.is_up()
    gate.open()
    await checker.wait_drained()

    report = await checker.report([*neighbours, blocker])
    assert report.faults == {}
    assert report.states == {"succeeded": NEIGHBOURS + 1}
    for row in report.history.values():
        assert (row["attempt"], row["errors"]) == (1, [])
        assert row["result"] == {"attempt": 1, "pid": worker.pid}
    assert (await worker.metrics())["chronos_heartbeater_loop_blocks_total"] >= 1
    stacks = [line["stack"] for line in worker.log() if "stack" in line]
    assert any("in block_the_loop" in stack for stack in stacks), stacks
