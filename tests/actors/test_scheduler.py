"""The scheduler makes jobs ready when they are due, and sleeps until then."""

from typing import Any
from uuid import UUID

import pytest
from anyio import wait_all_tasks_blocked

from chronos_runtime.actors.scheduler import Scheduler
from chronos_runtime.config import SchedulerConfig
from chronos_runtime.metrics import Metrics
from chronos_runtime.nudge import Nudge
from tests.actors.bench import ListeningNudge, on_both_loops, running
from tests.actors.flaky import FlakyStore
from tests.eventually import eventually
from tests.store.world import new_job

pytestmark = on_both_loops

PAUSE_S = 0.001


class Timetable:
    """A scheduler on a clock that the test moves."""

    def __init__(self, *, nudge: Nudge | None = None, hears: bool = False, **config: Any) -> None:
        self.now = 1_800_000_000.0
        self.store = FlakyStore(clock=lambda: self.now)
        self.metrics = Metrics()
        self.nudge = nudge or Nudge()
        self.hears = hears
        self.returns = 0
        self.scheduler = Scheduler(
            SchedulerConfig(
                **(
                    {
                        "interval_s": 1.0,
                        "idle_interval_s": 5.0,
                        "pause_s": PAUSE_S,
                        "fire_pause_s": PAUSE_S / 10,
                    }
                    | config
                )
            ),
            self.store,
            self.metrics,
            nudge=self.nudge,
            returned=self._note_return,
            hears=lambda: self.hears,
        )

    def _note_return(self) -> None:
        self.returns += 1

    async def enqueue(self, *delays_s: float) -> list[UUID]:
        jobs = [new_job(delay_s=delay_s) for delay_s in delays_s]
        await self.store.enqueue_jobs(jobs)
        return [job.id for job in jobs]

    async def states(self, ids: list[UUID]) -> list[str]:
        records = await self.store.get_jobs(ids)
        return [records[id].state for id in ids]


async def test_a_job_is_made_ready_when_it_is_due_and_not_before() -> None:
    table = Timetable()
    ids = await table.enqueue(10.0, 20.0)
    assert (await table.scheduler.promote_once()).promoted == 0
    assert table.returns == 0
    table.now += 10.0
    promotion = await table.scheduler.promote_once()
    assert (promotion.promoted, promotion.next_due_s) == (1, 10.0)
    assert await table.states(ids) == ["ready", "scheduled"]
    assert table.returns == 1


async def test_it_sleeps_until_the_next_job_is_due() -> None:
    nudge = ListeningNudge()
    table = Timetable(nudge=nudge)
    await table.enqueue(0.25, 0.75)
    async with running(table.scheduler.run):
        await eventually(lambda: len(nudge.waits) == 1)
        table.now += 0.25
        nudge()
        await eventually(lambda: len(nudge.waits) == 2)
    # A millisecond late rather than early, and the pause is over by then.
    assert nudge.waits == pytest.approx([0.251 - PAUSE_S, 0.501 - PAUSE_S])


async def test_what_falls_due_while_it_pauses_is_promoted_right_after() -> None:
    nudge = ListeningNudge()
    table = Timetable(nudge=nudge, pause_s=0.02)
    await table.enqueue(0.01)
    async with running(table.scheduler.run):
        await eventually(lambda: nudge.waits)
    assert nudge.waits == [0.0]


async def test_a_nudge_does_not_cut_its_pause_short() -> None:
    table = Timetable(pause_s=3_600.0)
    async with running(table.scheduler.run):
        await wait_all_tasks_blocked()
        for _ in range(3):
            table.nudge()
            await wait_all_tasks_blocked()
    assert len(table.store.calls["promote_jobs"]) == 1


@pytest.mark.parametrize(("hears", "longest"), [(True, 5.0), (False, 1.0)])
@pytest.mark.parametrize("delays_s", [[], [3_600.0]])
async def test_it_never_sleeps_longer_than_it_may(
    hears: bool, longest: float, delays_s: list[float]
) -> None:
    nudge = ListeningNudge()
    table = Timetable(nudge=nudge, hears=hears)
    await table.enqueue(*delays_s)
    async with running(table.scheduler.run):
        await eventually(lambda: nudge.waits)
    assert nudge.waits == [longest - PAUSE_S]


async def test_a_nudge_wakes_it_for_what_is_due_sooner() -> None:
    table = Timetable(interval_s=3_600.0)
    async with running(table.scheduler.run):
        await wait_all_tasks_blocked()
        ids = await table.enqueue(0.001)
        table.now += 0.01
        table.nudge()
        await eventually(lambda: table.returns)
    assert await table.states(ids) == ["ready"]


async def test_it_wakes_by_itself_when_a_job_is_due() -> None:
    table = Timetable(interval_s=3_600.0)
    [id] = await table.enqueue(0.01)
    async with running(table.scheduler.run):
        await eventually(lambda: table.store.calls["promote_jobs"])
        table.now += 0.01
        await eventually(lambda: table.returns)
    assert await table.states([id]) == ["ready"]


async def test_a_full_batch_is_followed_by_the_next_at_once() -> None:
    nudge = ListeningNudge()
    table = Timetable(nudge=nudge, batch_max=3)
    ids = await table.enqueue(*[1.0] * 8)
    table.now += 1.0
    async with running(table.scheduler.run):
        await eventually(lambda: nudge.waits)
    assert table.store.calls["promote_jobs"] == [3, 3, 3]
    assert await table.states(ids) == ["ready"] * 8


async def test_it_promotes_for_ever() -> None:
    table = Timetable(interval_s=0.001)
    async with running(table.scheduler.run):
        for expected in (1, 2, 3):
            await table.enqueue(1.0)
            table.now += 1.0
            await eventually(lambda expected=expected: table.returns >= expected)  # type: ignore[misc]
