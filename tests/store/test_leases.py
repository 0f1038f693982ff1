"""How leases are kept, and how they are taken back."""

from datetime import timedelta
from uuid import UUID

import pytest

from chronos_runtime.ids import Worker
from tests.store.world import FIRST, World, claimed, error_of


async def test_a_beat_extends_the_lease_and_nothing_else(world: World) -> None:
    job = await world.claim_one()
    before = await world.get(job.id)
    assert await world.store.extend_leases([claimed(job)], 500.0) == {job.id: False}
    after = await world.get(job.id)
    assert before.lease_until is not None
    assert after.lease_until is not None
    assert after.lease_until >= before.lease_until + timedelta(seconds=469)
    assert (after.state, after.attempt, after.lease_token) == ("running", 1, job.lease_token)
    assert await world.store.extend_leases([], 500.0) == {}


async def test_a_beat_learns_that_somebody_asked_to_cancel(world: World) -> None:
    asked, other = await world.claim_one(), await world.claim_one()
    await world.store.cancel_jobs([asked.id])
    beat = await world.store.extend_leases([claimed(asked), claimed(other)], 30.0)
    assert beat == {asked.id: True, other.id: False}


async def test_a_lease_that_ran_out_but_was_not_reaped_can_still_be_extended(world: World) -> None:
    job = await world.claim_one()
    await world.pass_time(3_600)
    assert await world.store.extend_leases([claimed(job)], 30.0) == {job.id: False}
    assert await world.store.reap_jobs(limit=10, after=FIRST) == []
    assert await world.finish(job)


async def test_a_job_whose_lease_ran_out_is_ready_again_at_once(world: World) -> None:
    job = await world.claim_one(topic="mail")
    await world.pass_time(31)
    [reaped] = await world.store.reap_jobs(limit=10, after=FIRST)
    assert (reaped.id, reaped.topic, reaped.kind) == (job.id, "mail", "greet")
    assert (reaped.attempt, reaped.lease_token, reaped.state) == (1, job.lease_token, "ready")
    record = await world.get(job.id)
    assert (record.state, record.attempt, record.lease_token) == ("ready", 1, None)
    assert record.lease_until is None
    [error] = record.errors
    assert (error["type"], error["message"]) == ("LeaseExpired", "worker lease expired")
    assert (error["attempt"], error["worker"]) == (1, world.worker.name)
    assert error["at"]
    [again] = await world.claim(topics=["mail"])
    assert again.wait_s == pytest.approx(31, abs=5), "as due as it was"


async def test_a_job_whose_lease_ran_out_in_its_last_attempt_is_dead(world: World) -> None:
    job = await world.claim_one(max_attempts=1, unique_key="k")
    await world.pass_time(31)
    [reaped] = await world.store.reap_jobs(limit=10, after=FIRST)
    assert reaped.state == "dead"
    record = await world.get(job.id)
    assert (record.state, record.attempt, record.unique_key) == ("dead", 1, "k")
    assert record.errors[-1]["message"] == "worker lease expired"
    assert record.finished_at is not None
    assert await world.store.find_unique(["k"]) == {}


@pytest.mark.parametrize("max_attempts", [1, 5])
async def test_a_job_asked_to_cancel_is_cancelled_when_its_lease_ran_out(
    world: World, max_attempts: int
) -> None:
    job = await world.claim_one(max_attempts=max_attempts)
    await world.store.cancel_jobs([job.id])
    await world.pass_time(31)
    [reaped] = await world.store.reap_jobs(limit=10, after=FIRST)
    assert reaped.state == (await world.get(job.id)).state == "cancelled"


async def test_the_reaper_touches_nothing_but_leases_that_ran_out(world: World) -> None:
    finished, retried = await world.claim_one(), await world.claim_one()
    await world.finish(finished)
    await world.give_back(retried, delay_s=0.0, error=error_of(world.worker, retried))
    await world.pass_time(3_600)
    [running] = await world.claim()
    [waiting] = await world.enqueue(delay_s=60.0)
    assert await world.store.reap_jobs(limit=10, after=FIRST) == []
    assert await world.store.list_expired(limit=10, after=FIRST) == []
    ids = [finished.id, running.id, waiting]
    assert await world.states(ids) == ["succeeded", "running", "scheduled"]


async def test_a_reaped_job_can_be_reaped_again_until_it_is_dead(world: World) -> None:
    [id] = await world.enqueue(max_attempts=3)
    states = []
    for _ in range(3):
        await world.claim()
        await world.pass_time(31)
        states += [one.state for one in await world.store.reap_jobs(limit=10, after=FIRST)]
    assert states == ["ready", "ready", "dead"]
    assert len((await world.get(id)).errors) == 3


async def test_the_reaper_goes_in_id_order_a_batch_at_a_time(world: World) -> None:
    ids = sorted(await world.enqueue(5))
    await world.claim()
    await world.pass_time(31)
    assert await world.store.list_expired(limit=3, after=FIRST) == ids[:3]
    assert await world.store.list_expired(limit=9, after=ids[2]) == ids[3:]
    first = await world.store.reap_jobs(limit=2, after=ids[0])
    assert [one.id for one in first] == ids[1:3]
    rest = await world.store.reap_jobs(limit=100, after=FIRST)
    assert [one.id for one in rest] == [ids[0], *ids[3:]]


async def test_what_a_worker_known_dead_was_holding_is_taken_back_at_once(world: World) -> None:
    dead = [await world.claim_one(world.worker), await world.claim_one(world.worker)]
    alive = await world.claim_one(world.other_worker)
    reaped = await world.store.reap_jobs(
        limit=10, after=FIRST, dead_worker=(world.worker.id, world.worker.last_token)
    )
    assert {one.id for one in reaped} == {job.id for job in dead}
    assert (await world.get(alive.id)).state == "running"


async def test_a_worker_known_dead_does_not_shadow_leases_that_ran_out(world: World) -> None:
    expired = await world.claim_one(world.other_worker)
    await world.pass_time(31)
    nobody = Worker()
    reaped = await world.store.reap_jobs(
        limit=10, after=FIRST, dead_worker=(nobody.id, nobody.last_token)
    )
    assert [one.id for one in reaped] == [expired.id]


async def test_a_claim_whose_reply_was_lost_is_given_back_whole(world: World) -> None:
    ids = await world.enqueue(3)
    [job] = await world.claim(room=1)
    lost: UUID = world.worker.next_token()
    await world.claim(token=lost)
    assert await world.store.release_claim(lost) == 2
    assert await world.store.release_claim(lost) == 0
    records = await world.store.get_jobs(ids)
    given_back = [record for record in records.values() if record.id != job.id]
    assert [(one.state, one.attempt, one.lease_token) for one in given_back] == [
        ("ready", 0, None)
    ] * 2
    assert records[job.id].state == "running"
