"""Due jobs become ready."""

import pytest

from tests.store.world import World


async def test_due_jobs_become_ready_and_the_next_instant_is_told(world: World) -> None:
    [first] = await world.enqueue(delay_s=50.0)
    [second] = await world.enqueue(delay_s=150.0)
    promotion = await world.store.promote_jobs(10)
    assert promotion.promoted == 0
    assert promotion.next_due_s == pytest.approx(50, abs=5)
    await world.pass_time(100)
    promotion = await world.store.promote_jobs(10)
    assert promotion.promoted == 1
    assert promotion.next_due_s == pytest.approx(50, abs=5)
    assert await world.states([first, second]) == ["ready", "scheduled"]
    assert [job.id for job in await world.claim()] == [first]


async def test_nothing_scheduled_means_no_next_instant(world: World) -> None:
    await world.enqueue()
    promotion = await world.store.promote_jobs(10)
    assert (promotion.promoted, promotion.next_due_s) == (0, None)


async def test_a_pass_is_bounded_and_takes_the_most_overdue_first(world: World) -> None:
    late = [(await world.enqueue(delay_s=50.0 - number))[0] for number in range(5)]
    await world.pass_time(100)
    assert (await world.store.promote_jobs(2)).promoted == 2
    assert await world.states(late) == ["scheduled"] * 3 + ["ready"] * 2
    assert (await world.store.promote_jobs(9)).promoted == 3
    assert (await world.store.promote_jobs(9)).promoted == 0


async def test_a_promoted_job_stands_by_when_it_was_enqueued_not_by_when_it_was_due(
    world: World,
) -> None:
    [early] = await world.enqueue(delay_s=50.0)
    [plain] = await world.enqueue()
    await world.pass_time(100)
    await world.store.promote_jobs(9)
    assert [job.id for job in await world.claim()] == [early, plain]


async def test_a_retried_job_waits_and_comes_back(world: World) -> None:
    job = await world.claim_one()
    await world.give_back(job, "retry", delay_s=50.0)
    assert await world.claim() == []
    await world.pass_time(60)
    assert (await world.store.promote_jobs(9)).promoted == 1
    [again] = await world.claim()
    assert (again.id, again.attempt) == (job.id, 2)
    assert again.wait_s == pytest.approx(10, abs=5)
