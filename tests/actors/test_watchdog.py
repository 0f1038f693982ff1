"""The watchdog takes back what the dead were holding, all of it, and touches nobody else."""

import logging
from typing import Any
from uuid import UUID

import pytest

from chronos_runtime.actors.watchdog import Watchdog
from chronos_runtime.config import WatchdogConfig
from chronos_runtime.errors import StoreError, StoreUnavailable
from chronos_runtime.ids import Worker
from chronos_runtime.job import Job
from chronos_runtime.metrics import Metrics
from chronos_runtime.store import Reaped, Wanted
from tests.actors.bench import on_both_loops, running, sample
from tests.actors.flaky import Before, FlakyStore
from tests.eventually import eventually
from tests.store.world import NO_FRONTIER, new_job

pytestmark = on_both_loops


class PoisonedStore(FlakyStore):
    """Cannot reap some rows, nor any batch that holds one of them."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0
        super().__init__(clock=lambda: self.now)
        self.poisoned: set[UUID] = set()

    async def reap_jobs(
        self, *, limit: int, after: UUID, dead_worker: tuple[UUID, UUID] | None = None
    ) -> list[Reaped]:
        batch = await self.list_expired(limit=limit, after=after)
        if self.poisoned & set(batch):
            raise StoreError("a row that cannot be reaped")
        return await super().reap_jobs(limit=limit, after=after, dead_worker=dead_worker)


class Kennel:
    """A watchdog, and jobs whose workers may die."""

    def __init__(self, **config: Any) -> None:
        self.store = PoisonedStore()
        self.metrics = Metrics()
        self.returns = 0
        self.watchdog = Watchdog(
            WatchdogConfig(**config), self.store, self.metrics, returned=self._note_return
        )

    def _note_return(self) -> None:
        self.returns += 1

    async def claim(self, count: int = 1, **changes: Any) -> list[Job]:
        await self.store.enqueue_jobs([new_job(**changes) for _ in range(count)])
        return await self.store.claim_jobs(
            Worker().next_token(),
            [Wanted("default", 1_000, NO_FRONTIER)],
            kinds=["greet"],
            room=1_000,
            lease_s=30.0,
            claimed_at=0.0,
        )

    async def states(self, jobs: list[Job]) -> list[str]:
        records = await self.store.get_jobs([job.id for job in jobs])
        return [records[job.id].state for job in jobs]


async def test_expired_leases_are_taken_back_and_others_are_not() -> None:
    kennel = Kennel()
    dead = await kennel.claim(3)
    kennel.store.now += 20.0
    alive = await kennel.claim(2)
    kennel.store.now += 11.0
    assert await kennel.watchdog.reap_once() == 3
    assert await kennel.states(dead) == ["ready"] * 3
    assert await kennel.states(alive) == ["running"] * 2
    assert kennel.returns == 1
    assert kennel.metrics.reaped.value("default", "greet") == 3


async def test_a_job_that_killed_its_last_worker_is_dead() -> None:
    kennel = Kennel()
    [last] = await kennel.claim(max_attempts=1)
    [cancelled] = await kennel.claim()
    await kennel.store.cancel_jobs([cancelled.id])
    kennel.store.now += 31.0
    await kennel.watchdog.reap_once()
    assert await kennel.states([last, cancelled]) == ["dead", "cancelled"]


async def test_nothing_to_reap_nudges_nobody() -> None:
    kennel = Kennel()
    await kennel.claim()
    assert await kennel.watchdog.reap_once() == 0
    assert kennel.returns == 0


async def test_every_reaped_job_is_logged_with_the_claim_it_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    kennel = Kennel()
    [job] = await kennel.claim()
    kennel.store.now += 31.0
    await kennel.watchdog.reap_once()
    [line] = [record for record in caplog.records if record.levelno == logging.WARNING]
    fields = vars(line)
    assert fields["job"] == str(job.id)
    assert fields["token"] == str(job.lease_token)
    assert (fields["attempt"], fields["state"]) == (1, "ready")


async def test_a_full_batch_is_followed_by_the_next_at_once() -> None:
    kennel = Kennel(batch_max=4, interval_s=3_600.0)
    jobs = await kennel.claim(10)
    kennel.store.now += 31.0
    async with running(kennel.watchdog.run):
        await eventually(lambda: kennel.metrics.reaped.total == 10)
    assert await kennel.states(jobs) == ["ready"] * 10


async def test_it_sweeps_for_ever() -> None:
    kennel = Kennel(interval_s=0.001)
    async with running(kennel.watchdog.run):
        for reaped in (1, 2):
            await kennel.claim()
            kennel.store.now += 31.0
            await eventually(lambda reaped=reaped: kennel.metrics.reaped.total >= reaped)  # type: ignore[misc]


@pytest.mark.parametrize("bad", [{0}, {2}, {9}, {0, 1, 2}, {3, 4, 9}, set(range(10))])
@pytest.mark.parametrize("batch_max", [1, 3, 100])
async def test_rows_that_cannot_be_reaped_do_not_stop_the_sweep(
    bad: set[int], batch_max: int, caplog: pytest.LogCaptureFixture
) -> None:
    kennel = Kennel(batch_max=batch_max)
    jobs = sorted(await kennel.claim(10), key=lambda job: job.id)
    kennel.store.poisoned = {jobs[index].id for index in bad}
    kennel.store.now += 31.0
    while await kennel.watchdog.reap_once():
        pass
    expected = ["running" if index in bad else "ready" for index in range(10)]
    assert await kennel.states(jobs) == expected
    assert sample(kennel.metrics, "chronos_watchdog_skipped_rows_total") >= len(bad)
    skipped = {vars(line).get("job") for line in caplog.records if "skipped" in line.message}
    assert skipped == {str(id) for id in kennel.store.poisoned}


async def test_an_outage_is_for_the_supervisor() -> None:
    kennel = Kennel()
    kennel.store.fail("reap_jobs", Before(StoreUnavailable("away")))
    with pytest.raises(StoreUnavailable):
        await kennel.watchdog.reap_once()
    assert sample(kennel.metrics, "chronos_watchdog_skipped_rows_total") == 0


async def test_an_outage_in_the_middle_of_a_careful_sweep_is_for_the_supervisor() -> None:
    kennel = Kennel()
    jobs = await kennel.claim(3)
    kennel.store.poisoned = {jobs[0].id}
    kennel.store.now += 31.0
    kennel.store.fail("reap_jobs", Before(StoreUnavailable("away")))
    with pytest.raises(StoreUnavailable):
        await kennel.watchdog.reap_once()
    assert await kennel.watchdog.reap_once() == 2


async def test_many_watchdogs_reap_every_job_once() -> None:
    kennel = Kennel(batch_max=3)
    watchdogs = [
        Watchdog(WatchdogConfig(batch_max=3), kennel.store, kennel.metrics, returned=lambda: None)
        for _ in range(4)
    ]
    await kennel.claim(20)
    kennel.store.now += 31.0

    async def sweep() -> None:
        for watchdog in watchdogs:
            await watchdog.reap_once()

    async with running(sweep), running(sweep):
        await eventually(lambda: kennel.metrics.reaped.total == 20)
