"""The scheduler fires schedules when they are due, each occurrence once, whoever looks."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from chronos_runtime.actors.scheduler import Scheduler
from chronos_runtime.config import SchedulerConfig
from chronos_runtime.errors import StoreError, StoreUnavailable
from chronos_runtime.ids import Worker
from chronos_runtime.job import Finish, Job
from chronos_runtime.metrics import Metrics
from chronos_runtime.schedule import Fired, Firing, Schedule
from chronos_runtime.store import Wanted
from chronos_runtime.store.memory import MemoryStore
from tests.actors.bench import ListeningNudge, on_both_loops, running
from tests.eventually import eventually

pytestmark = on_both_loops

START = datetime(2027, 1, 15, 8, tzinfo=UTC)


class Calendar:
    """A store on a clock that the test moves, and schedulers on it."""

    def __init__(self) -> None:
        self.now = START
        self.store = MemoryStore(clock=self._clock)
        self.metrics = Metrics()
        self.nudge = ListeningNudge()

    def _clock(self) -> float:
        return self.now.timestamp()

    def scheduler(self, **config: Any) -> Scheduler:
        return Scheduler(
            SchedulerConfig(**({"pause_s": 0.001, "fire_pause_s": 0.0001} | config)),
            self.store,
            self.metrics,
            nudge=self.nudge,
            returned=lambda: None,
            hears=lambda: True,
        )

    async def add(self, name: str = "minutely", **changes: Any) -> Schedule:
        plain: dict[str, Any] = {
            "cron": "* * * * *",
            "next_run_at": self.now + timedelta(minutes=1),
        }
        schedule = Schedule(id=uuid4(), name=name, kind="greet", **(plain | changes))
        assert await self.store.schedules.add_schedules([schedule])
        return schedule

    async def read(self, name: str = "minutely") -> Schedule:
        _, found = await self.store.schedules.get_schedules([name])
        return found[-1]

    def pass_time(self, **how: float) -> None:
        self.now += timedelta(**how)

    async def claim(self, kind: str = "greet", topic: str = "default") -> list[Job]:
        return await self.store.claim_jobs(
            Worker().next_token(),
            [Wanted(topic, 1_000, [0] * 10)],
            kinds=[kind],
            room=1_000,
            lease_s=30.0,
            claimed_at=0.0,
        )

    async def finish(self, *jobs: Job) -> None:
        await self.store.finish_jobs([Finish(job, "succeeded", 0.1) for job in jobs])

    def count(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(name, labels) or 0.0


async def test_a_schedule_fires_when_it_is_due_and_not_before() -> None:
    calendar = Calendar()
    await calendar.add()
    scheduler = calendar.scheduler()
    await scheduler.fire_once()
    assert await calendar.claim() == []
    calendar.pass_time(seconds=61)
    await scheduler.fire_once()
    await scheduler.fire_once()
    [job] = await calendar.claim()
    assert job.occurrence == START + timedelta(minutes=1)
    assert (await calendar.read()).next_run_at == START + timedelta(minutes=2)
    labels = {"topic": "default", "kind": "greet"}
    assert calendar.count("chronos_scheduler_fired_jobs_total", **labels) == 1
    assert calendar.count("chronos_scheduler_fire_late_seconds_sum") == 1.0


async def test_two_schedulers_that_read_the_same_fire_it_once() -> None:
    calendar = Calendar()
    await calendar.add()
    calendar.pass_time(seconds=61)
    fire = calendar.store.schedules.fire_schedules
    other = calendar.scheduler()

    async def fire_late(firings: list[Firing]) -> dict[Any, Fired]:
        calendar.store.schedules.fire_schedules = fire  # type: ignore[method-assign]
        await other.fire_once()
        return await fire(firings)

    calendar.store.schedules.fire_schedules = fire_late  # type: ignore[method-assign,assignment]
    await calendar.scheduler().fire_once()
    assert len(await calendar.claim()) == 1
    assert calendar.count("chronos_scheduler_lost_races_total") == 1


@pytest.mark.parametrize("lost", ["before", "after"])
async def test_a_crash_around_the_statement_neither_loses_nor_doubles_a_fire(lost: str) -> None:
    calendar = Calendar()
    await calendar.add()
    calendar.pass_time(seconds=61)
    fire = calendar.store.schedules.fire_schedules

    async def crash(firings: list[Firing]) -> dict[Any, Fired]:
        if lost == "after":
            await fire(firings)
        raise StoreUnavailable("gone")

    calendar.store.schedules.fire_schedules = crash  # type: ignore[method-assign,assignment]
    with pytest.raises(StoreUnavailable):
        await calendar.scheduler().fire_once()
    calendar.store.schedules.fire_schedules = fire  # type: ignore[method-assign]
    await calendar.scheduler().fire_once()
    assert len(await calendar.claim()) == 1


async def test_three_days_without_a_scheduler_end_in_one_fire_and_a_count() -> None:
    calendar = Calendar()
    first = START + timedelta(seconds=1)
    await calendar.add("each second", cron=None, interval_s=1.0, next_run_at=first)
    calendar.pass_time(days=3)
    await calendar.scheduler().fire_once()
    [job] = await calendar.claim()
    assert job.occurrence == calendar.now
    after = await calendar.read("each second")
    assert after.next_run_at == calendar.now + timedelta(seconds=1)
    assert after.skipped == 3 * 86_400 - 1
    assert calendar.count("chronos_scheduler_skipped_occurrences_total", why="catch_up") > 0


async def test_a_schedule_that_cannot_be_evaluated_is_marked_and_stops_no_other() -> None:
    calendar = Calendar()
    await calendar.add("bad cron", cron="often")
    await calendar.add("bad zone", tz="Europe/Atlantis")
    await calendar.add("good")
    calendar.pass_time(seconds=61)
    scheduler = calendar.scheduler()
    await scheduler.fire_once()
    assert len(await calendar.claim()) == 1
    for name in ("bad cron", "bad zone"):
        broken = await calendar.read(name)
        assert (broken.status, broken.next_run_at) == ("broken", None)
        assert broken.broken_error
    assert calendar.count("chronos_scheduler_broken_schedules_total") == 2
    await scheduler.fire_once()
    assert calendar.count("chronos_scheduler_broken_schedules_total") == 2


async def test_a_schedule_that_cannot_be_stored_is_marked_and_stops_no_other() -> None:
    calendar = Calendar()
    await calendar.add("bad")
    await calendar.add("good")
    calendar.pass_time(seconds=61)
    fire = calendar.store.schedules.fire_schedules

    async def refuse(firings: list[Firing]) -> dict[Any, Fired]:
        if any(one.schedule.name == "bad" for one in firings):
            raise StoreError("out of range")
        return await fire(firings)

    calendar.store.schedules.fire_schedules = refuse  # type: ignore[method-assign,assignment]
    await calendar.scheduler().fire_once()
    assert len(await calendar.claim()) == 1
    assert (await calendar.read("bad")).broken_error == "out of range"


async def test_a_full_batch_is_followed_by_the_next_at_once() -> None:
    calendar = Calendar()
    for number in range(5):
        await calendar.add(f"schedule {number}")
    calendar.pass_time(seconds=61)
    scheduler = calendar.scheduler(fire_batch_max=2)
    assert [await scheduler.fire_once() for _ in range(3)] == [True, True, False]
    assert len(await calendar.claim()) == 5


async def test_many_fires_of_one_batch_go_by_the_handful() -> None:
    calendar = Calendar()
    for name in ("a", "b"):
        await calendar.add(name, catch_up="all", catch_up_max=700)
    calendar.pass_time(days=1)
    sizes: list[int] = []
    fire = calendar.store.schedules.fire_schedules

    async def note(firings: list[Firing]) -> dict[Any, Fired]:
        sizes.append(len(firings))
        return await fire(firings)

    calendar.store.schedules.fire_schedules = note  # type: ignore[method-assign,assignment]
    await calendar.scheduler().fire_once()
    assert sizes == [1, 1]
    assert len(await calendar.claim()) == 1_000  # The claim's own bound; 1,400 are there.


async def test_a_waiting_occurrence_fires_when_the_living_one_has_ended() -> None:
    calendar = Calendar()
    await calendar.add(overlap="queue")
    scheduler = calendar.scheduler()
    calendar.pass_time(seconds=61)
    await scheduler.fire_once()
    [first] = await calendar.claim()
    calendar.pass_time(seconds=60)
    await scheduler.fire_once()
    await scheduler.fire_once()
    assert await calendar.claim() == []
    await calendar.finish(first)
    await scheduler.fire_once()
    [second] = await calendar.claim()
    assert second.occurrence == START + timedelta(minutes=2)


async def test_it_looks_every_second_while_an_occurrence_waits() -> None:
    calendar = Calendar()
    await calendar.add(overlap="queue")
    for _ in range(2):
        calendar.pass_time(seconds=61)
        await calendar.scheduler().fire_once()
    async with running(calendar.scheduler().run):
        await eventually(lambda: calendar.nudge.waits)
    assert calendar.nudge.waits[0] == pytest.approx(1.0, abs=0.1)


async def test_it_sleeps_until_the_next_schedule_is_due() -> None:
    calendar = Calendar()
    await calendar.add(next_run_at=START + timedelta(seconds=3))
    async with running(calendar.scheduler().run):
        await eventually(lambda: calendar.nudge.waits)
    assert calendar.nudge.waits[0] == pytest.approx(3.0, abs=0.1)


async def test_the_pause_is_part_of_the_sleep_and_not_taken_off_twice() -> None:
    calendar = Calendar()
    await calendar.add(next_run_at=START + timedelta(seconds=3))
    async with running(calendar.scheduler(pause_s=0.3).run):
        await eventually(lambda: calendar.nudge.waits)
    assert calendar.nudge.waits[0] == pytest.approx(2.7, abs=0.1)


async def test_it_sleeps_until_what_it_has_just_fired_is_due_again() -> None:
    calendar = Calendar()
    await calendar.add(cron=None, interval_s=3.0, next_run_at=START)
    async with running(calendar.scheduler().run):
        await eventually(lambda: calendar.nudge.waits)
    assert len(await calendar.claim()) == 1
    assert calendar.nudge.waits[0] == pytest.approx(3.0, abs=0.1)


async def test_what_it_could_not_fire_because_somebody_held_it_is_looked_at_again_soon() -> None:
    calendar = Calendar()
    await calendar.add(next_run_at=START)

    async def lose(firings: list[Firing]) -> dict[Any, Fired]:
        return {}

    calendar.store.schedules.fire_schedules = lose  # type: ignore[method-assign,assignment]
    async with running(calendar.scheduler(fire_pause_s=0.5).run):
        await eventually(lambda: calendar.nudge.waits)
    assert calendar.nudge.waits[0] == pytest.approx(0.5, abs=0.1)


async def test_a_nudge_has_the_schedules_looked_at_but_no_more_often_than_the_pause() -> None:
    calendar = Calendar()
    scheduler = calendar.scheduler(fire_pause_s=3_600.0)
    async with running(scheduler.run):
        await eventually(lambda: calendar.nudge.waits)
        await calendar.add(next_run_at=START)
        calendar.nudge()
        await eventually(lambda: len(calendar.nudge.waits) == 2)
        assert await calendar.claim() == []
    async with running(calendar.scheduler().run):
        await eventually(lambda: len(calendar.nudge.waits) == 3)
    assert len(await calendar.claim()) == 1


async def test_a_success_that_is_overdue_is_told_and_one_that_comes_takes_it_back() -> None:
    calendar = Calendar()
    await calendar.add(
        expect_success_within_s=90.0, expect_url="https://example.org/absent", paused=False
    )
    scheduler = calendar.scheduler()
    calendar.pass_time(seconds=100)
    await scheduler.fire_once()
    await scheduler.fire_once()
    assert calendar.count("chronos_scheduler_absences_total") == 1
    assert calendar.count("chronos_scheduler_absent_schedules") == 1
    assert len(await calendar.claim("chronos.wake", "chronos")) == 1
    await calendar.finish(*await calendar.claim())
    await scheduler.fire_once()
    assert calendar.count("chronos_scheduler_absent_schedules") == 0
