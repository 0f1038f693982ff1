"""How a fire ends is carried to its schedule, by whatever statement ends it."""

from datetime import timedelta
from typing import Any

import pytest

from chronos_runtime.job import Finish, Job
from chronos_runtime.schedule import Schedule
from tests.store.schedules import add, clock, fire, read
from tests.store.world import FIRST, World, error_of


async def fire_one(world: World, name: str = "nightly", **how: Any) -> Job:
    """Fire and claim."""
    await fire(world, name, **how)
    [job] = await world.claim()
    return job


def ends(schedule: Schedule) -> tuple[Any, ...]:
    return (schedule.last_outcome, schedule.consecutive_failures, schedule.last_error)


async def test_a_success_is_noted(world: World) -> None:
    await add(world)
    await world.finish(await fire_one(world))
    after = await read(world)
    assert ends(after) == ("succeeded", 0, None)
    assert after.last_success_at == after.last_ended_at
    assert abs(await clock(world) - after.last_ended_at) < timedelta(seconds=5)  # type: ignore[operator]


async def test_failures_are_counted_until_a_success(world: World) -> None:
    await add(world)
    for count in (1, 2):
        job = await fire_one(world, next_s=1)
        await world.finish(job, "dead", error=error_of(world.worker, job, f"boom {count}"))
        assert ends(await read(world)) == ("dead", count, f"ValueError: boom {count}")
    await world.finish(await fire_one(world, next_s=1))
    assert ends(await read(world)) == ("succeeded", 0, "ValueError: boom 2")


async def test_a_failed_attempt_that_is_tried_again_is_no_end(world: World) -> None:
    await add(world)
    job = await fire_one(world)
    await world.give_back(job, "retry", error=error_of(world.worker, job))
    assert ends(await read(world)) == (None, 0, None)


async def test_fires_that_end_together_count_in_order_of_their_occurrences(world: World) -> None:
    await add(world)
    for _ in range(4):
        await fire(world, next_s=1)
    states: list[Any] = ["dead", "succeeded", "dead", "dead"]
    jobs = await world.claim()
    finishes = [
        Finish(job, state, 0.5, error=error_of(world.worker, job, str(number)))
        for number, (job, state) in enumerate(zip(jobs, states, strict=True))
    ]
    await world.store.finish_jobs(list(reversed(finishes)))
    assert ends(await read(world)) == ("dead", 2, "ValueError: 3")


async def test_fires_of_several_schedules_end_beside_plain_jobs(world: World) -> None:
    for name in ("a", "b"):
        await add(world, name)
        await fire(world, name)
    await world.enqueue(3)
    jobs = await world.claim()
    assert len(await world.store.finish_jobs([Finish(job, "succeeded", 0.5) for job in jobs])) == 5
    assert [(await read(world, name)).last_outcome for name in "ab"] == ["succeeded"] * 2


async def test_a_reaped_fire_that_is_dead_is_noted(world: World) -> None:
    await add(world, max_attempts=1)
    await fire_one(world)
    await world.pass_time(3_600)
    await world.store.reap_jobs(limit=9, after=FIRST)
    assert ends(await read(world)) == ("dead", 1, "LeaseExpired: worker lease expired")


async def test_a_reaped_fire_that_lives_on_is_not(world: World) -> None:
    await add(world)
    await fire_one(world)
    await world.pass_time(3_600)
    await world.store.reap_jobs(limit=9, after=FIRST)
    assert ends(await read(world)) == (None, 0, None)


async def test_a_fire_cancelled_while_it_waits_is_noted(world: World) -> None:
    await add(world)
    await fire(world)
    job_id = (await read(world)).last_job_id
    assert job_id
    await world.store.cancel_jobs([job_id])
    assert ends(await read(world)) == ("cancelled", 0, None)


async def test_a_fire_given_back_after_a_cancel_is_noted(world: World) -> None:
    await add(world)
    job = await fire_one(world)
    await world.store.cancel_jobs([job.id])
    assert ends(await read(world)) == (None, 0, None)
    assert await world.give_back(job, "release") == "cancelled"
    assert ends(await read(world)) == ("cancelled", 0, None)
    assert (await world.get(job.id)).schedule_id == job.schedule_id


async def test_a_dead_fire_that_is_retried_is_the_same_fire(world: World) -> None:
    id = await add(world)
    job = await fire_one(world)
    await world.finish(job, "dead", error=error_of(world.worker, job))
    await world.store.retry_jobs([job.id])
    [again] = await world.claim()
    assert (again.schedule_id, again.occurrence) == (id, job.occurrence)
    await world.finish(again)
    assert ends(await read(world)) == ("succeeded", 0, "ValueError: boom")


@pytest.mark.parametrize(
    ("state", "status"), [("succeeded", "fired"), ("dead", "failed"), ("cancelled", "cancelled")]
)
async def test_the_fire_of_an_alarm_ends_it(world: World, state: Any, status: str) -> None:
    await add(world, is_alarm=True, cron=None, once_at=await clock(world))
    job = await fire_one(world, next_s=None)
    assert (await read(world)).status == "active"
    await world.finish(job, state, error=error_of(world.worker, job))
    assert (await read(world)).status == status


async def test_a_series_goes_on_after_a_bad_fire_and_ends_with_its_last(world: World) -> None:
    await add(world, is_alarm=True)
    job = await fire_one(world, next_s=1)
    await world.finish(job, "dead", error=error_of(world.worker, job))
    assert (await read(world)).status == "active"
    job = await fire_one(world, next_s=None)
    await world.finish(job, "dead", error=error_of(world.worker, job))
    assert (await read(world)).status == "fired"


async def test_an_ended_alarm_frees_its_name_and_is_kept(world: World) -> None:
    store = world.store.schedules
    first = await add(world, is_alarm=True)
    assert await store.end_alarm(first, "failed", "410 Gone")
    assert not await store.end_alarm(first, "cancelled")
    ended = await read(world)
    assert (ended.status, ended.last_error, ended.next_run_at) == ("failed", "410 Gone", None)
    await world.pass_time(1)
    second = await add(world, is_alarm=True)
    _, found = await store.get_schedules(["nightly"])
    assert [one.id for one in found] == [first, second]


async def test_only_an_alarm_can_be_ended(world: World) -> None:
    assert not await world.store.schedules.end_alarm(await add(world), "cancelled")


async def test_waiting_fires_can_be_postponed(world: World) -> None:
    id = await add(world)
    running = await fire_one(world, next_s=1)
    retried = await fire_one(world, next_s=1)
    await world.give_back(retried, "retry", delay_s=50.0)
    await fire(world, next_s=1)
    ready = (await read(world)).last_job_id
    until = await clock(world) + timedelta(seconds=500)
    assert await world.store.schedules.postpone_fires(id, until) == {retried.id, ready}
    await world.pass_time(300)
    await world.store.promote_jobs(9)
    assert await world.claim() == []
    await world.pass_time(300)
    await world.store.promote_jobs(9)
    assert {one.id for one in await world.claim()} == {retried.id, ready}
    assert await world.states([running.id]) == ["running"]


async def test_a_success_that_does_not_come_is_told_once(world: World) -> None:
    store = world.store.schedules
    await add(world, expect_success_within_s=150.0, expect_url="https://example.org/x")
    await add(world, "paused", expect_success_within_s=150.0, paused=True)
    await add(world, "unexpected")
    assert not (await store.list_due(9)).has_overdue
    assert await store.mark_absent(9, kind="chronos.wake", topic="chronos") == []
    await world.pass_time(200)
    assert (await store.list_due(9)).has_overdue
    marked = await store.mark_absent(9, kind="chronos.wake", topic="chronos")
    assert [one.name for one in marked] == ["nightly"]
    due = await store.list_due(9)
    assert (due.has_overdue, due.absent) == (False, 1)
    assert await store.mark_absent(9, kind="chronos.wake", topic="chronos") == []
    [job] = await world.claim(topics=["chronos"], kinds=["chronos.wake"])
    payload: Any = (await world.get(job.id)).payload
    assert (payload["url"], payload["body"]["schedule"]) == ("https://example.org/x", "nightly")


async def test_a_success_takes_the_mark_off_and_the_wait_begins_anew(world: World) -> None:
    store = world.store.schedules
    await add(world, expect_success_within_s=150.0)
    await world.pass_time(200)
    await store.mark_absent(9, kind="chronos.wake", topic="chronos")
    assert (await read(world)).is_absent
    await world.finish(await fire_one(world))
    assert not (await read(world)).is_absent
    assert await store.mark_absent(9, kind="chronos.wake", topic="chronos") == []
    await world.pass_time(200)
    marked = await store.mark_absent(9, kind="chronos.wake", topic="chronos")
    assert len(marked) == 1


async def test_what_ended_is_forgotten_after_a_while_but_for_what_code_made(world: World) -> None:
    await add(world, "done")
    await fire(world, "done", next_s=None)
    await add(world, "of code", origin="shop")
    await fire(world, "of code", next_s=None)
    await add(world, "alarm", is_alarm=True)
    await world.store.schedules.end_alarm((await read(world, "alarm")).id, "cancelled")
    await add(world, "active")
    await world.pass_time(100)
    assert await world.store.schedules.prune_schedules(200.0, 9) == 0
    assert await world.store.schedules.prune_schedules(50.0, 1) == 1
    assert await world.store.schedules.prune_schedules(50.0, 9) == 1
    _, left = await world.store.schedules.get_schedules(["done", "of code", "alarm", "active"])
    assert {one.name for one in left} == {"of code", "active"}
