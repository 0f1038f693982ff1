"""Beats go on while the loop is blocked, and whoever blocks it is named."""

import threading
import time
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import anyio
import pytest

from chronos_runtime.beat_thread import BeatThread
from chronos_runtime.config import HeartbeaterConfig, SupervisorConfig
from chronos_runtime.errors import CrashLoop, StoreUnavailable
from chronos_runtime.ids import Worker
from chronos_runtime.inflight import Inflight
from chronos_runtime.job import Job
from chronos_runtime.metrics import Metrics
from chronos_runtime.store import Wanted
from chronos_runtime.supervisor import Supervisor
from tests.actors.bench import DEADLINE_S, restarts, running, sample
from tests.actors.flaky import Before, FlakyStore, Miss
from tests.eventually import eventually
from tests.store.world import FIRST, NO_FRONTIER, new_job

THREAD = "chronos-heartbeater"
PROMPT_S = 1.0  # Twenty times what a stop takes: a busy machine is no failure.


class ClosingStore(FlakyStore):
    """Remembers that it was closed, and by which thread."""

    def __init__(self) -> None:
        super().__init__()
        self.closed_by: list[str] = []

    async def close(self) -> None:
        self.closed_by.append(threading.current_thread().name)


class Rig:
    """A heartbeater on its thread, with one job to beat for."""

    def __init__(self, **config: Any) -> None:
        self.store = ClosingStore()
        self.metrics = Metrics()
        self.inflight = Inflight(100)
        self.lost: list[tuple[UUID, int]] = []
        self.cancelled: list[tuple[UUID, int]] = []
        self.supervisor = Supervisor(
            SupervisorConfig(backoff_s=0.001, backoff_max_s=0.001, restarts_max=2), self.metrics
        )
        self.config = HeartbeaterConfig(
            **({"lease_s": 30.0, "interval_s": 0.02, "lag_warn_s": 60.0} | config)
        )
        self.thread = BeatThread(
            self.config,
            self.store,
            self.inflight,
            self.metrics,
            self.supervisor,
            worker=Worker().name,
            lost=lambda id: self.lost.append((id, threading.get_ident())),
            cancel=lambda id: self.cancelled.append((id, threading.get_ident())),
        )

    async def claim(self) -> Job:
        await self.store.enqueue_jobs([new_job()])
        jobs = await self.store.claim_jobs(
            Worker().next_token(),
            [Wanted("default", 1, NO_FRONTIER)],
            kinds=["greet"],
            room=1,
            lease_s=30.0,
            claimed_at=0.0,
        )
        [job] = self.inflight.claim(jobs)
        return job

    @property
    def beats(self) -> int:
        return len(self.store.calls["extend_leases"])

    async def supervised(self) -> None:
        await self.supervisor.run(self.thread)


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    yield
    assert THREAD not in {thread.name for thread in threading.enumerate()}


def crunch_numbers(seconds: float) -> None:
    """Block the loop as a careless handler does."""
    time.sleep(seconds)


async def test_beats_go_on_while_the_loop_is_blocked() -> None:
    rig = Rig()
    await rig.claim()
    async with running(rig.thread.run):
        await eventually(lambda: rig.beats)
        before = rig.beats
        crunch_numbers(0.5)
        assert rig.beats >= before + 5  # Of 25.
    assert rig.lost == []


async def test_a_loop_that_is_blocked_is_counted_and_the_culprit_is_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rig = Rig(lag_warn_s=0.3)  # More than a busy machine keeps a thread waiting.
    async with running(rig.thread.run):
        await eventually(lambda: sample(rig.metrics, "chronos_heartbeater_loop_lag_seconds"))
        crunch_numbers(1.1)  # Longer than two pings lie apart, and that.
        await eventually(
            lambda: 0 < sample(rig.metrics, "chronos_heartbeater_loop_lag_seconds") < 0.05
        )
    assert sample(rig.metrics, "chronos_heartbeater_loop_blocks_total") == 1
    [line] = [record for record in caplog.records if "blocked" in record.getMessage()]
    assert "crunch_numbers" in vars(line)["stack"]


async def test_a_loop_that_answers_is_not_counted() -> None:
    rig = Rig(lag_warn_s=5.0)
    async with running(rig.thread.run):
        await eventually(lambda: sample(rig.metrics, "chronos_heartbeater_loop_lag_seconds"))
    assert sample(rig.metrics, "chronos_heartbeater_loop_blocks_total") == 0


async def test_it_stops_promptly_and_closes_its_store_on_its_own_thread() -> None:
    rig = Rig(interval_s=3_600.0)
    async with running(rig.thread.run) as scope:
        await eventually(lambda: THREAD in {thread.name for thread in threading.enumerate()})
        stopped_at = time.monotonic()
        scope.cancel()
    assert time.monotonic() - stopped_at < PROMPT_S
    assert rig.store.closed_by == [THREAD]


async def test_it_may_be_stopped_before_it_began() -> None:
    for steps in range(6):
        rig = Rig()
        async with running(rig.thread.run) as scope:
            for _ in range(steps):
                await anyio.lowlevel.checkpoint()
            scope.cancel()


async def test_lost_leases_and_wishes_to_cancel_arrive_on_the_home_loop() -> None:
    rig = Rig()
    gone, unwanted = await rig.claim(), await rig.claim()
    await rig.store.cancel_jobs([unwanted.id])
    token = gone.lease_token
    await rig.store.reap_jobs(limit=1, after=FIRST, dead_worker=(token, token))
    async with running(rig.thread.run):
        await eventually(lambda: rig.lost and rig.cancelled)
    here = threading.get_ident()
    assert set(rig.lost) == {(gone.id, here)}
    assert set(rig.cancelled) == {(unwanted.id, here)}


async def test_an_outage_is_waited_out_on_the_thread() -> None:
    rig = Rig()
    await rig.claim()
    rig.store.fail("extend_leases", *[Before(StoreUnavailable("away"))] * 20)
    async with running(rig.supervised):
        await eventually(lambda: rig.beats > 22)
    assert restarts(rig.metrics, "heartbeater") == 20


async def test_a_crash_loop_on_the_thread_ends_the_process_at_once() -> None:
    rig = Rig()
    await rig.claim()
    rig.store.fail("extend_leases", *[Before(ValueError("broken"))] * 100)
    with anyio.fail_after(DEADLINE_S), pytest.raises(CrashLoop, match="heartbeater crashed 3"):
        await rig.supervised()
    assert rig.beats == 3  # The budget on the thread is not multiplied by the one above it.


async def test_a_bug_on_the_thread_ends_the_process_at_once() -> None:
    rig = Rig()
    await rig.claim()
    rig.store.fail("extend_leases", Before(AssertionError("bug")))
    with anyio.fail_after(DEADLINE_S), pytest.raises(AssertionError, match="bug"):
        await rig.supervised()
    assert rig.beats == 1


async def test_it_beats_again_after_a_restart_on_a_thread_of_its_own() -> None:
    rig = Rig()
    await rig.claim()
    for _ in range(3):
        before = rig.beats
        async with running(rig.thread.run):
            await eventually(lambda before=before: rig.beats > before)  # type: ignore[misc]
    assert len(rig.store.closed_by) == 3


async def test_a_beat_that_reached_nobody_is_only_a_beat() -> None:
    rig = Rig()
    await rig.claim()
    rig.store.fail("extend_leases", Miss())
    async with running(rig.thread.run):
        await eventually(lambda: rig.beats >= 3)
    assert rig.lost == []
