"""The history keeps what it should, for as long as it should."""

import pytest

from tests.store.world import World

DAY_S = 86_400.0


@pytest.fixture(autouse=True)
async def no_partitions(world: World) -> None:
    """Nobody has made a partition yet; migrating makes the first ones."""
    await world.store.prune_history(-1_000 * DAY_S)


async def test_partitions_are_made_once(world: World) -> None:
    assert await world.store.make_partitions(2) == 3
    assert await world.store.make_partitions(2) == 0
    assert await world.store.make_partitions(3) == 1


async def test_retention_drops_whole_days_that_ended_before_it(world: World) -> None:
    await world.store.make_partitions(0)
    job = await world.claim_one()
    await world.finish(job)
    assert await world.store.prune_history(DAY_S) == []
    assert (await world.get(job.id)).state == "succeeded"
    # A retention in the past of which the whole day lies, without waiting for tomorrow.
    [name] = await world.store.prune_history(-2 * DAY_S)
    assert name.startswith("job_history_2")
    assert await world.store.get_jobs([job.id]) == {}
    assert await world.store.make_partitions(0) == 1


async def test_what_no_day_owns_is_kept_and_pruned_by_its_age(world: World) -> None:
    old = await world.claim_one()
    await world.finish(old)
    await world.pass_time(10 * DAY_S)
    new = await world.claim_one()
    await world.finish(new)
    assert await world.store.prune_history(5 * DAY_S) == []
    assert set(await world.store.get_jobs([old.id, new.id])) == {new.id}


async def test_a_day_whose_jobs_stand_in_the_default_partition_gets_none(world: World) -> None:
    await world.finish(await world.claim_one())
    assert await world.store.make_partitions(1) == 1, "tomorrow's"


async def test_jobs_in_any_partition_are_read_retried_and_discarded_alike(world: World) -> None:
    ids = [await world.make_dead()]
    await world.pass_time(2 * DAY_S)
    await world.store.make_partitions(0)
    ids += [await world.make_dead(), await world.make_dead()]
    assert await world.states(ids) == ["dead"] * 3
    assert (await world.store.count_history(9)).dead == 3
    assert await world.store.retry_jobs(ids[:2]) == set(ids[:2])
    assert await world.store.discard_jobs(ids) == {ids[2]}


async def test_retention_never_touches_live_jobs(world: World) -> None:
    ids = await world.enqueue(2) + await world.enqueue(delay_s=1.0)
    await world.claim(room=1)
    await world.pass_time(400 * DAY_S)
    await world.store.prune_history(DAY_S)
    assert await world.states(ids) == ["running", "ready", "scheduled"]
