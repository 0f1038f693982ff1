"""The listener turns what it hears into nudges, and says when it hears nothing."""

from uuid import UUID

import pytest
from anyio import wait_all_tasks_blocked

from chronos_runtime.actors.listener import Listener
from chronos_runtime.config import ListenerConfig, SupervisorConfig
from chronos_runtime.errors import StoreUnavailable
from chronos_runtime.metrics import Metrics
from chronos_runtime.nudge import Nudge
from chronos_runtime.store import Heard
from chronos_runtime.store.memory import MemoryStore
from chronos_runtime.supervisor import Supervisor
from tests.actors.bench import on_both_loops, restarts, running, sample
from tests.eventually import eventually
from tests.store.world import new_job

pytestmark = on_both_loops

JOB = UUID(int=7)


class BreakingStore(MemoryStore):
    """Hears one sign of life, then the connection is gone."""

    def __init__(self, breaks: int) -> None:
        super().__init__()
        self.breaks = breaks
        self.presences: list[int] = []

    async def listen(
        self, heard: Heard, *, presence: int, probe_s: float, probe_deadline_s: float
    ) -> None:
        self.presences.append(presence)
        if self.breaks:
            self.breaks -= 1
            heard("", "")
            raise StoreUnavailable("listen: the connection was closed")
        await super().listen(
            heard, presence=presence, probe_s=probe_s, probe_deadline_s=probe_deadline_s
        )


class Ear:
    """A listener and everybody it may wake."""

    def __init__(self, store: MemoryStore | None = None, *, probe_s: float = 3_600.0) -> None:
        self.store = store or MemoryStore()
        self.metrics = Metrics()
        self.ready, self.due = Nudge(), Nudge()
        self.returns = 0
        self.cancelled: list[UUID] = []
        self.handed: list[str] = []
        self.listener = Listener(
            ListenerConfig(probe_s=probe_s),
            self.store,
            self.metrics,
            ready=self.ready,
            returned=self._note_return,
            due=self.due,
            handed=self.handed.append,
            cancel=self.cancelled.append,
        )

    def _note_return(self) -> None:
        self.returns += 1

    async def woken(self) -> set[str]:
        """Who was woken since the last time."""
        woken = {name for name in ("ready", "due") if await getattr(self, name).wait(0.0)}
        woken |= {"returned"} if self.returns else set()
        self.returns = 0
        return woken

    def state(self) -> tuple[bool, float]:
        return self.listener.is_up, sample(self.metrics, "chronos_listener_up_state")


@pytest.mark.parametrize(
    ("channel", "woken"),
    [
        ("chronos_ready", {"ready"}),
        ("chronos_returned", {"returned"}),
        ("chronos_due", {"due"}),
        ("chronos_cancel", set()),
    ],
)
async def test_every_channel_wakes_whom_it_concerns(channel: str, woken: set[str]) -> None:
    ear = Ear()
    ear.listener.hear(channel, str(JOB))
    assert await ear.woken() == woken
    assert ear.cancelled == ([JOB] if channel == "chronos_cancel" else [])
    name = "chronos_listener_notifications_total"
    assert sample(ear.metrics, name, channel=channel) == 1


async def test_notifications_are_rows_and_signs_of_life_are_passes() -> None:
    ear = Ear()
    progress = ear.metrics.actors["listener"]
    progress.progressed_at -= 1_000.0
    old = progress.progressed_at
    ear.listener.hear("chronos_ready", "mail")
    assert progress.progressed_at > old + 999.0
    ear.listener.hear("", "probe")
    assert sample(ear.metrics, "chronos_listener_rows_total") == 2
    assert sample(ear.metrics, "chronos_listener_pass_seconds_count") == 1


@pytest.mark.parametrize("payload", ["", "nobody", "\x00", "7" * 1_000, "{}", "*"])
async def test_a_bad_job_id_is_ignored(payload: str, caplog: pytest.LogCaptureFixture) -> None:
    ear = Ear()
    ear.listener.hear("chronos_cancel", payload)
    assert ear.cancelled == []
    assert "bad job id" in caplog.text


async def test_a_topic_as_payload_wakes_all_the_same() -> None:
    ear = Ear()
    ear.listener.hear("chronos_ready", "mail\x1b[31m")
    assert await ear.woken() == {"ready"}


async def test_whoever_may_have_missed_something_looks_when_it_listens_again() -> None:
    ear = Ear()
    assert ear.state() == (False, 0)
    async with running(ear.listener.run):
        await wait_all_tasks_blocked()
        assert ear.state() == (True, 1)
        assert {"returned", "due"} <= await ear.woken()
        ear.listener.hear("", "probe")  # A sign of life says nothing new.
        assert await ear.woken() == set()


async def test_whoever_trusted_in_it_looks_when_it_stops_hearing() -> None:
    ear = Ear()
    async with running(ear.listener.run):
        await wait_all_tasks_blocked()
        await ear.woken()
    assert ear.state() == (False, 0)
    assert await ear.woken() == {"returned", "due"}


async def test_a_lost_connection_is_down_and_an_outage() -> None:
    ear = Ear(BreakingStore(breaks=1))
    with pytest.raises(StoreUnavailable):
        await ear.listener.run()
    assert ear.state() == (False, 0)


async def test_every_connection_is_known_under_a_number_of_its_own() -> None:
    store = BreakingStore(breaks=3)  # The lock of the one before may outlive it on the server.
    ear = Ear(store)
    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            await ear.listener.run()
    assert len(set(store.presences)) == 3


async def test_it_listens_again_after_an_outage_of_any_length() -> None:
    ear = Ear(BreakingStore(breaks=30))
    config = SupervisorConfig(backoff_s=0.0001, backoff_max_s=0.0001, restarts_max=1)
    supervisor = Supervisor(config, ear.metrics)

    async def supervised() -> None:
        await supervisor.run(ear.listener)

    async with running(supervised):
        await eventually(lambda: restarts(ear.metrics, "listener") == 30)
        await eventually(lambda: ear.listener.is_up)


async def test_signs_of_life_are_counted() -> None:
    ear = Ear(probe_s=0.001)
    name = "chronos_listener_notifications_total"
    async with running(ear.listener.run):
        await eventually(lambda: sample(ear.metrics, name, channel="probe") >= 3)
    assert await ear.woken() == {"returned", "due"}


async def test_what_others_do_is_heard() -> None:
    ear = Ear()
    job = new_job()
    async with running(ear.listener.run):
        await wait_all_tasks_blocked()
        await ear.woken()
        await ear.store.mark_idle(UUID(int=1), ["default"])
        await ear.store.enqueue_jobs([job])
        assert await ear.woken() == {"ready"}
        await ear.store.set_paused("default", False)
        assert await ear.woken() == {"returned"}
