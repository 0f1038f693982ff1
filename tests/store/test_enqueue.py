"""What is enqueued is there, once."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from chronos_runtime.errors import StoreError, StoreUnavailable
from tests.store.world import PostgresWorld, World, new_job


async def test_a_job_is_stored_with_everything_that_was_said_about_it(world: World) -> None:
    [id] = await world.enqueue(
        topic="mail",
        kind="greet",
        priority=3,
        payload='{"to": ["a", 1, null]}',
        max_attempts=7,
        timeout_s=2.5,
        unique_key="only one",
    )
    job = await world.get(id)
    assert (job.topic, job.kind, job.priority, job.max_attempts) == ("mail", "greet", 3, 7)
    assert (job.timeout_s, job.unique_key) == (2.5, "only one")
    assert job.payload == {"to": ["a", 1, None]}
    assert (job.attempt, job.errors, job.result, job.run_s) == (0, [], None, None)
    assert (job.lease_token, job.lease_until, job.finished_at) == (None, None, None)
    assert job.cancel_requested is False
    assert job.run_at == job.enqueued_at


@pytest.mark.parametrize("others", [0, 1, 500])  # By itself, beside another, copied.
@pytest.mark.parametrize("timeout_s", [None, 2.5])
async def test_a_job_is_stored_alike_however_many_go_in_with_it(
    world: World, others: int, timeout_s: float | None
) -> None:
    text = 'tab\t line\n return\r back\\slash "quote" é 😀 \\N'
    odd = new_job(
        topic="größe\\t1",
        kind="naïve\\N",
        payload=msgspec.json.encode({"text": text, text: [1, None]}).decode(),
        priority=9,
        max_attempts=1_000_000,
        timeout_s=timeout_s,
    )
    await world.store.enqueue_jobs([*(new_job() for _ in range(others)), odd])
    job = await world.get(odd.id)
    assert (job.topic, job.kind, job.priority) == ("größe\\t1", "naïve\\N", 9)
    assert (job.max_attempts, job.timeout_s) == (1_000_000, timeout_s)
    assert job.payload == {"text": text, text: [1, None]}
    assert (job.state, job.run_at) == ("ready", job.enqueued_at)


async def test_a_job_without_a_time_is_ready_at_once(world: World) -> None:
    ids = await world.enqueue() + await world.enqueue(delay_s=0.0) + await world.enqueue(delay_s=-9)
    assert await world.states(ids) == ["ready", "ready", "ready"]


async def test_a_job_of_the_future_is_scheduled_and_one_of_the_past_is_ready(world: World) -> None:
    [later] = await world.enqueue(delay_s=60.0)
    job = await world.get(later)
    assert job.state == "scheduled"
    assert job.run_at == job.enqueued_at + timedelta(seconds=60)

    far, past = datetime(2100, 1, 1, tzinfo=UTC), datetime(2001, 1, 1, tzinfo=UTC)
    [on_time] = await world.enqueue(run_at=far, delay_s=5.0)
    [overdue] = await world.enqueue(run_at=past)
    assert await world.states([on_time, overdue]) == ["scheduled", "ready"]
    assert (await world.get(on_time)).run_at == far, "an instant wins over a delay"


async def test_a_job_sent_twice_is_there_once(world: World) -> None:
    first, second = new_job(), new_job()
    assert set(await world.store.enqueue_jobs([first])) == {first.id}
    assert set(await world.store.enqueue_jobs([first, second])) == {second.id}
    assert set(await world.store.enqueue_jobs([])) == set()
    assert len(await world.claim()) == 2


async def test_a_unique_key_admits_one_live_job(world: World) -> None:
    first, second, third = (new_job(unique_key="k") for _ in range(3))
    assert set(await world.store.enqueue_jobs([first, second])) == {first.id}
    assert set(await world.store.enqueue_jobs([third, new_job()])) != {third.id}
    assert await world.store.find_unique(["k", "nobody's"]) == {"k": first.id}
    assert await world.store.get_jobs([second.id, third.id]) == {}


async def test_a_unique_key_is_free_again_when_its_job_has_ended(world: World) -> None:
    job = await world.claim_one(unique_key="k")
    assert set(await world.store.enqueue_jobs([new_job(unique_key="k")])) == set()
    await world.finish(job)
    assert await world.store.find_unique(["k"]) == {}
    await world.enqueue(unique_key="k")


async def test_an_id_used_again_after_its_job_ended_reads_as_the_live_one(world: World) -> None:
    job = await world.claim_one()
    await world.finish(job)
    await world.enqueue(priority=1)
    assert set(await world.store.enqueue_jobs([new_job(id=job.id, priority=2)])) == {job.id}
    assert (await world.get(job.id)).priority == 2


async def test_jobs_go_in_by_the_hundred_thousand_and_keep_their_order(world: World) -> None:
    ids = await world.enqueue(100_000 if isinstance(world, PostgresWorld) else 10_000)
    claimed = await world.claim(room=1_000)
    assert [job.id for job in claimed] == ids[:1_000]


async def test_many_jobs_of_all_sorts_go_in_at_once(world: World) -> None:
    jobs = [
        new_job(
            delay_s=60.0 if number % 3 == 1 else None,
            unique_key=f"key {number // 6}" if number % 3 == 2 else None,
        )
        for number in range(1_200)
    ]
    kept = {job.id for number, job in enumerate(jobs) if number % 6 != 5}
    inserted = await world.store.enqueue_jobs(jobs)
    assert set(inserted) == kept
    assert len(inserted) == len(kept), "each once"
    assert set(await world.store.enqueue_jobs([job for job in jobs if not job.is_plain])) == set()


@pytest.mark.parametrize("count", [2, 1_000])
async def test_sending_a_batch_again_adds_only_what_is_missing(world: World, count: int) -> None:
    jobs = [new_job() for _ in range(count)]
    assert len(await world.store.enqueue_jobs(jobs[:-1])) == count - 1
    assert set(await world.store.enqueue_jobs(jobs)) == {jobs[-1].id}


@pytest.mark.parametrize(
    "wrong",
    [
        {"priority": 10},
        {"priority": -1},
        {"topic": ""},
        {"topic": "*"},
        {"topic": "é" * 101},
        {"kind": ""},
        {"kind": "k" * 201},
        {"unique_key": ""},
        {"unique_key": "u" * 1_001},
        {"max_attempts": 0},
        {"max_attempts": 1_000_001},
        {"timeout_s": 0.0},
        {"timeout_s": float("inf")},
        {"delay_s": 1e12},
        {"run_at": datetime(9999, 6, 1, tzinfo=UTC)},
        {"run_at": datetime(1999, 12, 31, tzinfo=UTC)},
        {"payload": "{not json"},
    ],
    ids=str,
)
@pytest.mark.parametrize("others", [0, 1, 500])  # By itself, beside another, copied.
async def test_a_job_the_table_refuses_keeps_its_whole_batch_out(
    world: World, wrong: dict[str, Any], others: int
) -> None:
    with pytest.raises(StoreError) as caught:
        await world.store.enqueue_jobs([*(new_job() for _ in range(others)), new_job(**wrong)])
    assert not isinstance(caught.value, StoreUnavailable)
    assert await world.claim() == []


@pytest.mark.parametrize("wrong", [{"priority": 2**15}, {"max_attempts": 2**31}], ids=str)
@pytest.mark.parametrize("others", [0, 1, 500])
async def test_a_number_no_column_holds_is_refused_like_any_other(
    world: World, wrong: dict[str, Any], others: int
) -> None:
    with pytest.raises(StoreError):
        await world.store.enqueue_jobs([*(new_job() for _ in range(others)), new_job(**wrong)])
    await world.enqueue()
    assert len(await world.claim()) == 1
