"""Whoever is idle offers to take a job, and a job that comes alone is his with its own commit."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest

from tests.eventually import eventually
from tests.store.world import FIRST, PRESENCE, PostgresWorld, World, new_job

Notice = tuple[str, str]
END = ("chronos_returned", "the end")


@asynccontextmanager
async def listening(world: World, presence: int = PRESENCE) -> AsyncIterator[list[Notice]]:
    """What a listener hears, for the length of a block."""
    notices: list[Notice] = []

    async def listen() -> None:
        await world.listen(lambda *notice: notices.append(notice), presence=presence)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(listen)
        await eventually(lambda: ("", "") in notices)
        notices.clear()
        yield notices
        tasks.cancel_scope.cancel()


@pytest.fixture
async def notices(world: World) -> AsyncIterator[list[Notice]]:
    """Somebody is idle: marked, and listening."""
    await world.store.mark_idle(world.worker.id, ["default"])
    async with listening(world) as notices:
        yield notices


async def all_of(world: World, notices: list[Notice]) -> list[Notice]:
    """What came up to now: commits are heard of in their order."""
    await world.store.set_paused(END[1], False)
    await eventually(lambda: END in notices)
    came = [one for one in notices if one != END]
    notices.clear()
    return came


async def test_a_job_that_comes_alone_is_leased_to_whoever_offered(
    world: World, notices: list[Notice]
) -> None:
    offer = await world.offer()
    [id] = await world.enqueue(payload='{"n": 1}', timeout_s=3.0, priority=2)
    assert await all_of(world, notices) == [("chronos_handed", f"{offer.token} {id}")]
    assert await world.claim(world.other_worker) == []
    job = await world.take(id, offer)
    assert job is not None
    assert (job.id, job.attempt, job.lease_token) == (id, 1, offer.token)
    assert (job.topic, job.kind, job.priority, job.timeout_s) == ("default", "greet", 2, 3.0)
    assert (job.wait_s, job.payload) == (0.0, '{"n": 1}')
    assert (await world.get(id)).state == "running"
    assert await world.finish(job)
    assert (await world.get(id)).state == "succeeded"


async def test_a_supervised_task_is_handed_over_as_what_it_is(
    world: World, notices: list[Notice]
) -> None:
    offer = await world.offer()
    [id] = await world.enqueue(supervisor="boss")
    job = await world.take(id, offer)
    assert job is not None
    assert (job.supervisor, job.lineage_no) == ("boss", 1)


async def test_an_offer_is_taken_up_once(world: World, notices: list[Notice]) -> None:
    offer = await world.offer()
    [first] = await world.enqueue()
    [second] = await world.enqueue()
    assert await all_of(world, notices) == [
        ("chronos_handed", f"{offer.token} {first}"),
        ("chronos_ready", "default"),
    ]
    assert [job.id for job in await world.claim()] == [second]


async def test_each_offer_is_taken_up_by_another_job(world: World, notices: list[Notice]) -> None:
    async with listening(world, presence=5):
        offers = [await world.offer(), await world.offer(world.other_worker, presence=5)]
        ids = [(await world.enqueue())[0] for _ in range(2)]
        taken = [await world.take(id, offer) for id in ids for offer in offers]
    assert sorted(job.id for job in taken if job is not None) == ids
    assert await world.claim() == []


async def test_only_whoever_offered_hears_of_it(world: World, notices: list[Notice]) -> None:
    async with listening(world, presence=5) as others:
        await world.offer()
        await world.enqueue()
        assert len(await all_of(world, notices)) == 1
        assert await all_of(world, others) == []


async def test_an_offer_that_two_hundred_others_came_after_is_as_good_as_withdrawn(
    world: World, notices: list[Notice]
) -> None:
    oldest, next_one = await world.offer(), await world.offer()
    for _ in range(199):
        other = await world.offer(kinds=["wave"])
        assert await world.store.offers.withdraw_offer(world.worker.id, other.token)
    [first] = await world.enqueue()
    assert await world.take(first, next_one) is not None
    [second] = await world.enqueue()
    assert (await world.get(second)).state == "ready"
    assert not await world.store.offers.withdraw_offer(world.worker.id, oldest.token)


LATER = datetime.now(UTC) + timedelta(days=1)


@pytest.mark.parametrize(
    "changes",
    [
        {"topic": "mail"},
        {"kind": "wave"},
        {"unique_key": "one"},
        {"delay_s": 60.0},
        {"run_at": LATER},
    ],
    ids=["topic", "kind", "key", "delay", "run_at"],
)
async def test_only_a_plain_job_that_is_offered_for_is_handed_over(
    world: World, notices: list[Notice], changes: dict[str, Any]
) -> None:
    await world.store.mark_idle(world.worker.id, ["mail"])
    offer = await world.offer()
    [id] = await world.enqueue(**changes)
    assert (await world.get(id)).state in ("ready", "scheduled")
    assert "chronos_handed" not in [channel for channel, _ in await all_of(world, notices)]
    assert await world.store.offers.withdraw_offer(world.worker.id, offer.token) is True


async def test_jobs_that_come_together_are_left_for_a_claim(
    world: World, notices: list[Notice]
) -> None:
    await world.offer()
    ids = await world.enqueue(2)
    assert await world.states(ids) == ["ready", "ready"]


async def _pause(world: World) -> None:
    await world.store.set_paused("default", True)


async def _pause_all(world: World) -> None:
    await world.store.set_paused("*", True)


async def _unmark(world: World) -> None:
    await world.store.unmark_idle(world.worker.id)


async def _forget(world: World) -> None:
    await world.store.forget_worker(world.worker.id)
    await world.store.mark_idle(world.worker.id, ["default"])


async def _prune(world: World) -> None:
    await world.pass_time(100.0)
    await world.store.prune_workers(60.0)
    await world.store.mark_idle(world.worker.id, ["default"])


@pytest.mark.parametrize("change", [_pause, _pause_all, _unmark, _forget, _prune])
async def test_nothing_is_handed_over_after(
    world: World, notices: list[Notice], change: Callable[[World], Awaitable[None]]
) -> None:
    await world.offer()
    await change(world)
    [id] = await world.enqueue()
    assert (await world.get(id)).state == "ready"


async def test_an_old_offer_of_a_worker_that_is_here_stays(
    world: World, notices: list[Notice]
) -> None:
    offer = await world.offer()
    await world.pass_time(100.0)
    await world.store.announce_worker(world.info())
    await world.store.prune_workers(60.0)
    await world.store.mark_idle(world.worker.id, ["default"])
    [id] = await world.enqueue()
    assert await world.take(id, offer) is not None


async def test_a_new_offer_of_a_worker_that_nobody_has_seen_yet_stays(
    world: World, notices: list[Notice]
) -> None:
    offer = await world.offer()
    await world.store.prune_workers(60.0)
    [id] = await world.enqueue()
    assert await world.take(id, offer) is not None


async def test_nothing_is_handed_to_who_is_gone_but_to_another_who_is_here(world: World) -> None:
    await world.store.mark_idle(world.worker.id, ["default"])
    async with listening(world):
        await world.offer()
    ids = await world.enqueue()
    await eventually_absent(world)
    assert await world.states(ids) == ["ready"]
    async with listening(world, presence=5):
        offer = await world.offer(world.other_worker, presence=5)
        [id] = await world.enqueue()
        assert await world.take(id, offer) is not None


async def eventually_absent(world: World) -> None:
    """The server notices that a listener's connection is gone."""
    if isinstance(world, PostgresWorld):
        question = "select pg_try_advisory_xact_lock($1)"

        async def is_absent() -> bool:
            return bool(await world.back_door.fetchval(question, PRESENCE))

        await eventually(is_absent)


async def test_what_was_withdrawn_is_not_taken_up(world: World, notices: list[Notice]) -> None:
    offer = await world.offer()
    assert await world.store.offers.withdraw_offer(world.worker.id, offer.token) is True
    assert await world.store.offers.withdraw_offer(world.worker.id, offer.token) is False
    [id] = await world.enqueue()
    assert (await world.get(id)).state == "ready"


async def test_a_job_that_was_sent_before_takes_up_no_offer(
    world: World, notices: list[Notice]
) -> None:
    job = new_job()
    await world.store.enqueue_jobs([job])
    offer = await world.offer()
    assert not await world.store.enqueue_jobs([job])
    assert await world.store.offers.withdraw_offer(world.worker.id, offer.token) is True


async def test_what_was_handed_over_can_be_given_back_with_its_attempt(
    world: World, notices: list[Notice]
) -> None:
    offer = await world.offer()
    [id] = await world.enqueue()
    assert await world.store.release_claim(offer.token) == 1
    [job] = await world.claim()
    assert (job.id, job.attempt) == (id, 1)


async def test_what_was_handed_to_a_dead_worker_is_reaped(
    world: World, notices: list[Notice]
) -> None:
    offer = await world.offer()
    [id] = await world.enqueue()
    await world.pass_time(31.0)
    [reaped] = await world.store.reap_jobs(limit=10, after=FIRST)
    assert (reaped.id, reaped.lease_token, reaped.state) == (id, offer.token, "ready")


async def test_what_is_left_of_its_lease_counts_from_the_enqueue(
    world: World, notices: list[Notice]
) -> None:
    offer = await world.offer()
    [id] = await world.enqueue()
    await world.pass_time(10.0)
    job = await world.take(id, offer)
    assert job is not None
    assert job.claimed_at == pytest.approx(90.0, abs=2.0)  # Asked at 100, leased 10 s before.


@pytest.mark.parametrize("passed_s", [15.1, 31.0])
async def test_a_job_with_less_than_half_a_lease_is_not_taken(
    world: World, notices: list[Notice], passed_s: float
) -> None:
    offer = await world.offer()
    [id] = await world.enqueue()
    await world.pass_time(passed_s)
    assert await world.take(id, offer) is None


async def test_a_job_that_is_somebody_elses_by_now_is_not_taken(
    world: World, notices: list[Notice]
) -> None:
    offer = await world.offer()
    [id] = await world.enqueue()
    await world.store.release_claim(offer.token)
    await world.claim(world.other_worker)
    assert await world.take(id, offer) is None


async def test_an_offer_forgets_claims_that_are_over(world: World, notices: list[Notice]) -> None:
    if not isinstance(world, PostgresWorld):
        return  # The model notes no claims.
    job = await world.claim_one()
    await world.finish(job)
    count = "select count(*) from chronos.claims"
    assert await world.back_door.fetchval(count) == 1
    offer = await world.offer()
    await world.store.offers.place_offer(offer, [job.lease_token])
    assert await world.back_door.fetchval(count) == 0
