"""Who is told of what: those who asked, and nobody else."""

from collections.abc import AsyncIterator, Awaitable, Callable

import anyio
import pytest

from chronos_runtime.config import SchedulerConfig
from tests.eventually import eventually
from tests.store.world import FIRST, World, new_job

Notice = tuple[str, str]
Listen = Callable[[], Awaitable[list[Notice]]]

END = ("chronos_returned", "the end")


class Ear:
    """Hears notifications; `since` gives those since the last time it was asked."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.notices: list[Notice] = []

    def hear(self, channel: str, payload: str) -> None:
        self.notices.append((channel, payload))

    async def since(self) -> list[Notice]:
        """Everything heard, up to a notification that is always sent and comes last."""
        await self._world.store.set_paused(END[1], False)
        await eventually(lambda: END in self.notices)
        notices = [one for one in self.notices if one[0] and one != END]
        self.notices.clear()
        return sorted(notices)


@pytest.fixture
async def ear(world: World) -> AsyncIterator[Ear]:
    ear = Ear(world)
    async with anyio.create_task_group() as tasks:

        async def listen() -> None:
            await world.listen(ear.hear)

        tasks.start_soon(listen)
        await eventually(lambda: ("", "") in ear.notices)
        yield ear
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("count", [1, 3, 1_000])  # By itself, with others, copied.
async def test_an_enqueue_notifies_the_marked_topics_once_and_no_others(
    world: World, ear: Ear, count: int
) -> None:
    await world.store.mark_idle(world.worker.id, ["mail", "default"])
    await world.store.mark_idle(world.other_worker.id, ["mail"])
    await world.enqueue(count, topic="mail")
    await world.enqueue(count, topic="sms")
    assert await ear.since() == [("chronos_ready", "mail")]


async def test_an_enqueue_whose_key_is_taken_notifies_nobody(world: World, ear: Ear) -> None:
    await world.enqueue(unique_key="k")
    await world.store.mark_idle(world.worker.id, ["default"])
    assert set(await world.store.enqueue_jobs([new_job(unique_key="k")])) == set()
    assert await ear.since() == []


async def test_without_a_mark_nobody_is_notified(world: World, ear: Ear) -> None:
    await world.store.mark_idle(world.worker.id, ["default"])
    await world.store.unmark_idle(world.worker.id)
    await world.store.mark_idle(world.worker.id, ["default"])
    await world.store.forget_worker(world.worker.id)
    await world.store.mark_idle(world.worker.id, ["default"])
    await world.pass_time(600)
    await world.store.prune_workers(300.0)
    await world.enqueue()
    [job] = await world.claim()
    await world.give_back(job, "release")
    assert await ear.since() == []


async def test_a_refreshed_mark_outlives_pruning(world: World, ear: Ear) -> None:
    await world.store.mark_idle(world.worker.id, ["default"])
    await world.pass_time(600)
    await world.store.mark_idle(world.worker.id, ["default"])
    await world.store.prune_workers(300.0)
    await world.enqueue()
    assert await ear.since() == [("chronos_ready", "default")]


async def test_taking_a_mark_back_leaves_the_marks_of_others(world: World, ear: Ear) -> None:
    await world.store.mark_idle(world.worker.id, ["default"])
    await world.store.mark_idle(world.other_worker.id, ["default"])
    await world.store.unmark_idle(world.worker.id)
    await world.enqueue()
    assert await ear.since() == [("chronos_ready", "default")]


@pytest.mark.parametrize("count", [1, 2])
async def test_a_job_due_before_an_idle_scheduler_looks_wakes_it_and_one_due_later_does_not(
    world: World, ear: Ear, count: int
) -> None:
    looks_within_s = SchedulerConfig().idle_interval_s
    await world.store.mark_idle(world.worker.id, ["default", "mail"])
    await world.enqueue(count, delay_s=looks_within_s - 1.0)
    await world.enqueue(count, delay_s=looks_within_s + 60.0, topic="mail")
    assert await ear.since() == [("chronos_due", "default")]


async def test_whatever_becomes_ready_again_is_told_as_returned(world: World, ear: Ear) -> None:
    topics = ["retried", "released", "unclaimed", "reaped", "promoted"]
    await world.store.mark_idle(world.worker.id, topics)
    retried, released = (
        await world.claim_one(topic="retried"),
        await world.claim_one(topic="released"),
    )
    unclaimed, _ = await world.claim_one(topic="unclaimed"), await world.claim_one(topic="reaped")
    await world.enqueue(topic="promoted", delay_s=60.0)
    await ear.since()

    await world.give_back(retried, "retry", delay_s=0.0)
    await world.give_back(released, "release")
    await world.store.release_claim(unclaimed.lease_token)
    assert await ear.since() == [
        ("chronos_returned", topic) for topic in ("released", "retried", "unclaimed")
    ]
    await world.pass_time(100)
    await world.store.reap_jobs(limit=9, after=FIRST)
    assert await ear.since() == [("chronos_returned", "reaped")]
    await world.store.promote_jobs(9)
    assert await ear.since() == [("chronos_returned", "promoted")]


async def test_what_does_not_become_ready_is_not_told(world: World, ear: Ear) -> None:
    await world.store.mark_idle(world.worker.id, ["default"])
    retried, finished = await world.claim_one(), await world.claim_one()
    dying = await world.claim_one(max_attempts=1)
    await ear.since()
    await world.give_back(retried, "retry", delay_s=5_000.0)
    await world.finish(finished)
    await world.lose_lease(dying)
    await world.store.promote_jobs(9)
    assert await ear.since() == []


async def test_a_dead_job_brought_back_is_told_as_new(world: World, ear: Ear) -> None:
    id = await world.make_dead()
    await world.store.mark_idle(world.worker.id, ["default"])
    await world.store.retry_jobs([id])
    assert await ear.since() == [("chronos_ready", "default")]


async def test_a_running_job_asked_to_cancel_is_told_by_id_mark_or_no_mark(
    world: World, ear: Ear
) -> None:
    first, second = await world.claim_one(), await world.claim_one()
    [waiting] = await world.enqueue()
    await world.store.cancel_jobs([first.id, second.id, waiting])
    assert await ear.since() == sorted(("chronos_cancel", str(job.id)) for job in (first, second))


async def test_opening_a_gate_is_told_and_closing_it_is_not(world: World, ear: Ear) -> None:
    await world.store.set_paused("mail", True)
    await world.store.set_paused("*", True)
    await world.store.set_paused("*", False)
    assert await ear.since() == [("chronos_returned", "*")]


async def test_a_listener_gives_signs_of_life(world: World) -> None:
    ear = Ear(world)
    async with anyio.create_task_group() as tasks:

        async def listen() -> None:
            await world.listen(ear.hear, probe_s=0.01)

        tasks.start_soon(listen)
        await eventually(lambda: ear.notices.count(("", "probe")) >= 2)
        tasks.cancel_scope.cancel()
    assert ear.notices[0] == ("", "")


async def test_every_listener_hears_and_one_that_left_does_not(world: World, ear: Ear) -> None:
    another = Ear(world)
    async with anyio.create_task_group() as tasks:

        async def listen() -> None:
            await world.listen(another.hear, presence=2)

        tasks.start_soon(listen)
        await eventually(lambda: ("", "") in another.notices)
        await world.store.set_paused("mail", False)
        await eventually(lambda: ("chronos_returned", "mail") in another.notices)
        tasks.cancel_scope.cancel()
    another.notices.clear()
    assert await ear.since() == [("chronos_returned", "mail")]
    assert another.notices == []


@pytest.mark.parametrize("is_crash", [False, True], ids=["reported", "reaped"])
async def test_a_failure_notifies_who_waits_for_facts(
    world: World, ear: Ear, is_crash: bool
) -> None:
    job = await world.claim_one(supervisor="mail", max_attempts=1)
    plain = await world.claim_one(max_attempts=1)
    await world.store.mark_idle(world.worker.id, ["chronos", "default"])
    if is_crash:
        await world.lose_lease(job)
    else:
        await world.finish(plain, "dead")
        assert await ear.since() == []
        await world.finish(job, "failed")
    assert await ear.since() == [("chronos_ready", "chronos")]


async def test_the_next_attempt_notifies_as_an_enqueue_does(world: World, ear: Ear) -> None:
    job = await world.claim_one(supervisor="")
    await world.finish(job, "failed")
    await world.store.mark_idle(world.worker.id, ["default"])
    for delay_s in (0.0, 5.0, 60.0):
        await world.store.start_attempt(job.id, id=new_job().id, payload=None, delay_s=delay_s)
    assert await ear.since() == [("chronos_due", "default"), ("chronos_ready", "default")]
