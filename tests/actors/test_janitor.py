"""The janitor keeps partitions ahead, retention behind, and presence fresh."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from chronos_runtime.actors.janitor import Janitor
from chronos_runtime.config import JanitorConfig
from chronos_runtime.errors import StoreUnavailable
from chronos_runtime.job import Finish
from chronos_runtime.metrics import Metrics
from chronos_runtime.store import Wanted, WorkerInfo
from chronos_runtime.store.memory import MemoryStore
from tests.actors.bench import on_both_loops, running, sample
from tests.eventually import eventually
from tests.store.world import NO_FRONTIER, START_S, new_job

pytestmark = on_both_loops

DAY_S = 86_400.0
AT_ONCE_S = 1e-9
WORKER = WorkerInfo(UUID(int=1), "host", 1, "0", ["default"], ["greet"])


class BreakingStore(MemoryStore):
    """Cannot make partitions while it is broken."""

    is_broken = False

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__(clock=clock)
        self.patrolled: list[UUID] = []
        self.patrols: list[tuple[UUID | None, int]] = []
        """What the next patrols come back with."""

    async def note_claims(self, *, limit: int, after: UUID) -> tuple[UUID | None, int]:
        self.patrolled.append(after)
        return self.patrols.pop(0) if self.patrols else (None, 0)

    async def make_partitions(self, days_ahead: int) -> int:
        if self.is_broken:
            raise StoreUnavailable("make_partitions: no answer")
        return await super().make_partitions(days_ahead)


class House:
    """A janitor on a clock that the test moves."""

    def __init__(self, **config: Any) -> None:
        self.now = START_S
        self.store = BreakingStore(clock=lambda: self.now)
        self.metrics = Metrics()
        self.janitor = Janitor(
            JanitorConfig(
                **(
                    {"days_ahead": 3, "retention_days": 30, "history_interval_s": AT_ONCE_S}
                    | config
                )
            ),
            self.store,
            self.metrics,
            worker=WORKER,
        )

    async def finish_one(self) -> UUID:
        job = new_job()
        await self.store.enqueue_jobs([job])
        [claimed] = await self.store.claim_jobs(
            UUID(int=9),
            [Wanted("default", 1, NO_FRONTIER)],
            kinds=["greet"],
            room=1,
            lease_s=30.0,
            claimed_at=0.0,
        )
        await self.store.finish_jobs([Finish(claimed, "succeeded", 0.1)])
        return job.id

    def partitions(self, action: str) -> float:
        return sample(self.metrics, "chronos_janitor_partitions_total", action=action)


async def test_partitions_are_made_ahead_once() -> None:
    house = House()
    await house.janitor.tidy_once()
    assert house.partitions("made") == 4  # Today and three days.
    await house.janitor.tidy_once()
    assert house.partitions("made") == 4
    house.now += DAY_S
    await house.janitor.tidy_once()
    assert (house.partitions("made"), house.partitions("dropped")) == (5, 0)


async def test_the_history_can_wait_while_presence_is_kept() -> None:
    house = House(history_interval_s=3_600.0)
    await house.store.enqueue_jobs([new_job(kind="greet")])
    await house.janitor.tidy_once()
    house.now += DAY_S
    await house.janitor.tidy_once()
    assert house.partitions("made") == 4
    assert await house.store.survey_unserved(100) == {}


async def test_a_look_at_the_history_that_failed_is_taken_again_in_the_next_round() -> None:
    house = House(history_interval_s=3_600.0)
    house.store.is_broken = True
    with pytest.raises(StoreUnavailable):
        await house.janitor.tidy_once()
    house.store.is_broken = False
    await house.janitor.tidy_once()
    assert house.partitions("made") == 4


async def test_the_patrol_goes_on_where_it_stopped_and_begins_again_at_the_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    house = House()
    house.store.patrols = [(UUID(int=5), 0), (None, 2), (UUID(int=3), 0)]
    for _ in range(3):
        await house.janitor.tidy_once()
    assert house.store.patrolled == [UUID(int=0), UUID(int=5), UUID(int=0)]
    assert caplog.text.count("leases found that belong to no claim") == 1


async def test_history_is_dropped_by_the_day_once_it_is_old_enough() -> None:
    house = House(retention_days=30)
    await house.janitor.tidy_once()
    old = await house.finish_one()
    house.now += 30 * DAY_S
    await house.janitor.tidy_once()
    assert await house.store.get_jobs([old])
    house.now += DAY_S
    await house.janitor.tidy_once()
    assert not await house.store.get_jobs([old])
    assert house.partitions("dropped") >= 1


async def test_live_jobs_are_never_touched() -> None:
    house = House(retention_days=1)
    job = new_job()
    await house.store.enqueue_jobs([job])
    for _ in range(5):
        house.now += 10 * DAY_S
        await house.janitor.tidy_once()
    assert (await house.store.get_jobs([job.id]))[job.id].state == "ready"


async def test_a_worker_that_is_here_is_known_and_one_that_left_is_forgotten() -> None:
    house = House()
    await house.store.enqueue_jobs([new_job(kind="greet"), new_job(kind="mend")])
    gone = WorkerInfo(UUID(int=2), "host", 2, "0", ["default"], ["mend"])
    await house.store.announce_worker(gone)
    await house.janitor.tidy_once()
    assert await house.store.survey_unserved(100) == {}
    for _ in range(6):
        house.now += 60.0
        await house.janitor.tidy_once()
    assert await house.store.survey_unserved(100) == {"mend": 1}


async def test_it_tidies_for_ever() -> None:
    house = House(interval_s=0.001)
    async with running(house.janitor.run):
        await eventually(lambda: house.partitions("made") == 4)
        house.now += DAY_S
        await eventually(lambda: house.partitions("made") == 5)
