"""What people do to jobs: cancel, retry, discard."""

import pytest

from chronos_runtime.errors import StoreError
from chronos_runtime.ids import new_job_id
from tests.store.world import FIRST, World, error_of


@pytest.mark.parametrize("delay_s", [None, 60.0])
async def test_a_waiting_job_is_cancelled_at_once(world: World, delay_s: float | None) -> None:
    [id] = await world.enqueue(delay_s=delay_s, unique_key="k", priority=2)
    assert await world.store.cancel_jobs([id]) == {id: "cancelled"}
    record = await world.get(id)
    assert (record.state, record.attempt, record.unique_key) == ("cancelled", 0, "k")
    assert (record.lease_token, record.run_s, record.priority) == (None, None, 2)
    assert record.finished_at is not None
    assert await world.store.find_unique(["k"]) == {}
    assert await world.claim() == []


async def test_a_running_job_is_asked_to_cancel_and_its_owner_decides(world: World) -> None:
    job = await world.claim_one()
    assert await world.store.cancel_jobs([job.id]) == {job.id: "requested"}
    record = await world.get(job.id)
    assert (record.state, record.cancel_requested) == ("running", True)
    assert await world.store.cancel_jobs([job.id]) == {job.id: "requested"}
    assert await world.finish(job, "succeeded")
    record = await world.get(job.id)
    assert (record.state, record.cancel_requested) == ("succeeded", False)


async def test_jobs_that_are_not_live_cannot_be_cancelled(world: World) -> None:
    job = await world.claim_one()
    await world.finish(job)
    [waiting] = await world.enqueue()
    results = await world.store.cancel_jobs([job.id, new_job_id(), waiting, waiting])
    assert results == {waiting: "cancelled"}
    assert (await world.get(job.id)).state == "succeeded"
    assert await world.store.cancel_jobs([]) == {}


async def test_a_dead_job_comes_back_with_its_past_and_new_attempts(world: World) -> None:
    id = await world.make_dead(
        topic="mail", priority=2, payload="[1]", max_attempts=3, timeout_s=2.5, unique_key="k"
    )
    dead = await world.get(id)
    assert await world.store.retry_jobs([id, new_job_id()]) == {id}
    record = await world.get(id)
    assert (record.state, record.attempt, record.max_attempts) == ("ready", 1, 3)
    assert (record.topic, record.priority, record.payload) == ("mail", 2, [1])
    assert (record.timeout_s, record.unique_key) == (2.5, "k")
    assert (record.errors, record.enqueued_at) == (dead.errors, dead.enqueued_at)
    assert (record.finished_at, record.lease_token, record.run_s) == (None, None, None)
    [job] = await world.claim(topics=["mail"])
    assert (job.id, job.attempt) == (id, 2), "so that id and attempt stay a key"
    listed = await world.store.list_jobs(states=None, topic=None, kind=None, before=None, limit=9)
    assert [one.state for one in listed] == ["running"]


async def test_a_job_that_comes_back_stands_behind_what_waits_already(world: World) -> None:
    id = await world.make_dead()
    [waiting] = await world.enqueue()
    await world.store.retry_jobs([id])
    assert [job.id for job in await world.claim()] == [waiting, id]


async def test_only_dead_jobs_are_retried_or_discarded(world: World) -> None:
    done, cancelled = await world.claim_one(), await world.claim_one()
    await world.finish(done)
    await world.finish(cancelled, "cancelled")
    running = await world.claim_one()
    [ready] = await world.enqueue()
    ids = [done.id, cancelled.id, running.id, ready]
    assert await world.store.retry_jobs(ids) == set()
    assert await world.store.discard_jobs(ids) == set()
    assert await world.states(ids) == ["succeeded", "cancelled", "running", "ready"]
    assert await world.store.retry_jobs([]) == set()


async def test_a_job_the_reaper_gave_up_can_be_retried(world: World) -> None:
    job = await world.claim_one(max_attempts=1)
    await world.lose_lease(job)
    assert await world.store.retry_jobs([job.id]) == {job.id}
    [again] = await world.claim()
    assert (again.attempt, again.max_attempts) == (2, 2)
    await world.pass_time(31)
    [reaped] = await world.store.reap_jobs(limit=1, after=FIRST)
    assert reaped.state == "dead"


async def test_a_retry_that_meets_a_taken_key_changes_nothing(world: World) -> None:
    free, clashing = await world.make_dead(), await world.make_dead(unique_key="k")
    [holder] = await world.enqueue(unique_key="k")
    with pytest.raises(StoreError, match="k"):
        await world.store.retry_jobs([free, clashing])
    assert await world.states([free, clashing, holder]) == ["dead", "dead", "ready"]
    assert await world.store.retry_jobs([free]) == {free}


async def test_two_dead_jobs_of_one_key_cannot_both_come_back(world: World) -> None:
    ids = [await world.make_dead(unique_key="k"), await world.make_dead(unique_key="k")]
    with pytest.raises(StoreError, match="k"):
        await world.store.retry_jobs(ids)
    assert await world.states(ids) == ["dead", "dead"]


async def test_a_discarded_job_stays_in_the_history_as_cancelled(world: World) -> None:
    id = await world.make_dead()
    before = await world.get(id)
    assert await world.store.discard_jobs([id]) == {id}
    assert await world.store.discard_jobs([id]) == set()
    record = await world.get(id)
    assert (record.state, record.errors) == ("cancelled", before.errors)
    assert record.finished_at == before.finished_at
    assert await world.store.retry_jobs([id]) == set()


async def test_a_job_may_die_and_come_back_any_number_of_times(world: World) -> None:
    id = await world.make_dead(max_attempts=1)
    for attempt in (2, 3, 4):
        assert await world.store.retry_jobs([id]) == {id}
        [job] = await world.claim()
        assert (job.id, job.attempt) == (id, attempt)
        await world.finish(job, "dead", error=error_of(world.worker, job))
    assert len((await world.get(id)).errors) == 4
