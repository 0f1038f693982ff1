"""The heartbeater keeps the leases of what is held for long, and tells who lost theirs."""

from typing import Any
from uuid import UUID

import anyio
import pytest
from anyio import wait_all_tasks_blocked

from chronos_runtime.actors.heartbeater import Heartbeater
from chronos_runtime.config import HeartbeaterConfig
from chronos_runtime.errors import StoreUnavailable
from chronos_runtime.ids import Worker
from chronos_runtime.inflight import Inflight
from chronos_runtime.job import Finish, Job, Return
from chronos_runtime.metrics import Metrics
from chronos_runtime.store import Claimed, Wanted
from tests.actors.bench import on_both_loops, running
from tests.actors.flaky import Before, FlakyStore, Hold, Miss
from tests.eventually import eventually
from tests.store.world import FIRST, NO_FRONTIER, new_job

pytestmark = on_both_loops

START_S = 1_800_000_000.0


class Ward:
    """A heartbeater and the jobs it beats for, on one clock."""

    def __init__(self, interval_s: float = 10.0) -> None:
        self.now = START_S
        self.store = FlakyStore(clock=lambda: self.now)
        self.metrics = Metrics()
        self.worker = Worker()
        self.inflight = Inflight(1_000, clock=lambda: self.now)
        self.lost: list[UUID] = []
        self.cancelled: list[UUID] = []
        self.heartbeater = Heartbeater(
            HeartbeaterConfig(lease_s=30.0, interval_s=interval_s),
            self.store,
            self.inflight,
            self.metrics,
            worker=self.worker.name,
            lost=self.lost.append,
            cancel=self.cancelled.append,
        )

    async def claim(self, count: int = 1, **changes: Any) -> list[Job]:
        """Jobs this process holds from now on."""
        await self.store.enqueue_jobs([new_job(**changes) for _ in range(count)])
        return self.inflight.claim(await self.claim_as(self.worker))

    async def claim_as(self, worker: Worker) -> list[Job]:
        return await self.store.claim_jobs(
            worker.next_token(),
            [Wanted("default", 1_000, NO_FRONTIER)],
            kinds=["greet"],
            room=1_000,
            lease_s=30.0,
            claimed_at=self.now,
        )

    async def lease_s(self, job: Job) -> float:
        """How much of a job's lease is left."""
        record = (await self.store.get_jobs([job.id]))[job.id]
        assert record.lease_until is not None
        return record.lease_until.timestamp() - self.now


async def test_a_beat_extends_the_leases_of_what_is_held_for_long() -> None:
    ward = Ward()
    old = await ward.claim(3)
    ward.now += 5.0
    new = await ward.claim(2)
    assert await ward.heartbeater.beat_once() == 3
    assert [await ward.lease_s(job) for job in old] == [30.0] * 3
    ward.now += 1.0
    assert [await ward.lease_s(job) for job in new] == [29.0] * 2
    assert ward.lost == ward.cancelled == []


async def test_a_beat_without_anything_to_extend_asks_the_database_nothing() -> None:
    ward = Ward()
    await ward.claim(3)
    assert await ward.heartbeater.beat_once() == 0
    assert ward.store.calls["extend_leases"] == []


async def test_a_job_keeps_its_lease_for_as_long_as_it_is_beaten_for() -> None:
    ward = Ward()
    await ward.claim()
    for _ in range(20):
        ward.now += 10.0
        await ward.heartbeater.beat_once()
        assert await ward.store.reap_jobs(limit=10, after=FIRST) == []
    assert ward.lost == []


async def test_what_waits_to_be_written_is_beaten_for_too() -> None:
    ward = Ward()
    [job] = await ward.claim()
    ward.inflight.start()
    ward.inflight.stop(job)
    ward.now += 10.0
    assert await ward.heartbeater.beat_once() == 1


async def test_a_lost_lease_is_told_and_counted() -> None:
    ward = Ward()
    lost, kept = await ward.claim(2)
    ward.now += 31.0
    await ward.store.extend_leases([_fence(kept)], 30.0)
    await ward.store.reap_jobs(limit=10, after=FIRST)
    assert await ward.heartbeater.beat_once() == 1
    assert (ward.lost, ward.cancelled) == ([lost.id], [])
    assert ward.metrics.lost.value("default", "greet") == 1


def _fence(job: Job) -> Claimed:
    return Claimed(job.id, job.lease_token, job.attempt)


async def test_a_lost_lease_is_told_until_its_handler_ended_and_counted_once() -> None:
    ward = Ward()
    [job] = await ward.claim()
    ward.now += 31.0
    await ward.store.reap_jobs(limit=10, after=FIRST)
    for _ in range(3):
        await ward.heartbeater.beat_once()
    assert ward.lost == [job.id] * 3
    assert ward.metrics.lost.total == 1
    ward.inflight.unqueue([job])
    ward.inflight.settle([job.id])
    [again] = ward.inflight.claim(await ward.claim_as(ward.worker))
    ward.now += 31.0
    await ward.store.reap_jobs(limit=10, after=FIRST)
    await ward.heartbeater.beat_once()
    assert (again.id, ward.metrics.lost.total) == (job.id, 2)


async def test_a_lease_another_worker_has_now_is_lost() -> None:
    ward = Ward()
    [job] = await ward.claim()
    ward.now += 31.0
    await ward.store.reap_jobs(limit=10, after=FIRST)
    [theirs] = await ward.claim_as(Worker())
    ward.now += 5.0
    await ward.heartbeater.beat_once()
    assert ward.lost == [job.id]
    assert await ward.lease_s(theirs) == 25.0  # A stale beat changes nothing.


async def test_a_job_a_beat_did_not_reach_though_it_is_ours_is_not_lost() -> None:
    ward = Ward()
    await ward.claim(3)
    ward.now += 10.0
    ward.store.fail("extend_leases", Miss())
    assert await ward.heartbeater.beat_once() == 0
    assert ward.lost == []
    assert await ward.heartbeater.beat_once() == 3


async def test_a_job_that_was_just_finished_is_not_lost() -> None:
    ward = Ward()
    done, released = await ward.claim(2)
    ward.now += 10.0
    await ward.store.finish_jobs([Finish(done, "succeeded", 0.1)])
    await ward.store.return_jobs([Return(released, "release")])
    assert await ward.heartbeater.beat_once() == 0
    assert ward.lost == []


async def test_a_job_that_left_the_registry_during_the_beat_is_not_asked_about() -> None:
    ward = Ward()
    [job] = await ward.claim()
    ward.now += 10.0
    slow = anyio.Event()
    ward.store.fail("extend_leases", Hold(slow))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ward.heartbeater.beat_once)
        await wait_all_tasks_blocked()
        await ward.store.finish_jobs([Finish(job, "succeeded", 0.1)])
        ward.inflight.unqueue([job])
        ward.inflight.settle([job.id])
        slow.set()
    assert ward.store.calls["verify_claims"] == []


@pytest.mark.parametrize("statement", ["extend_leases", "verify_claims"])
async def test_a_job_that_came_back_under_a_new_claim_during_the_beat_is_not_lost(
    statement: str,
) -> None:
    """The old claim is gone, and rightly so; the attempt that runs now is another one."""
    ward = Ward()
    [old] = await ward.claim()
    ward.now += 10.0
    slow = anyio.Event()
    ward.store.fail(statement, Hold(slow))
    if statement == "verify_claims":
        ward.store.fail("extend_leases", Miss())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ward.heartbeater.beat_once)
        await eventually(lambda: ward.store.calls[statement])
        await ward.store.return_jobs([Return(old, "retry", delay_s=0.0)])
        ward.inflight.unqueue([old])
        ward.inflight.settle([old.id])
        [new] = ward.inflight.claim(await ward.claim_as(ward.worker))
        slow.set()
    assert new.id == old.id
    assert ward.lost == []
    assert ward.metrics.lost.total == 0


async def test_a_wish_to_cancel_is_carried_by_the_next_beat() -> None:
    ward = Ward()
    wanted, _ = await ward.claim(2)
    ward.now += 10.0
    await ward.store.cancel_jobs([wanted.id])
    assert await ward.heartbeater.beat_once() == 2
    assert (ward.cancelled, ward.lost) == ([wanted.id], [])


async def test_a_beat_that_meets_an_outage_raises_and_the_next_one_extends() -> None:
    ward = Ward()
    await ward.claim()
    ward.now += 10.0
    ward.store.fail("extend_leases", Before(StoreUnavailable("away")))
    with pytest.raises(StoreUnavailable):
        await ward.heartbeater.beat_once()
    assert await ward.heartbeater.beat_once() == 1


async def test_it_beats_for_ever() -> None:
    ward = Ward(interval_s=0.001)
    await ward.claim()
    ward.now += 10.0
    async with running(ward.heartbeater.run):
        await eventually(lambda: len(ward.store.calls["extend_leases"]) >= 3)
