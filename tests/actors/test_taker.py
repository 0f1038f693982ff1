"""The taker takes what is handed over, hoards nothing, and leaves nothing behind."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from uuid import UUID

import anyio
import pytest
from anyio import wait_all_tasks_blocked

from chronos_runtime.actors.taker import Taker
from chronos_runtime.config import ClaimerConfig, SupervisorConfig
from chronos_runtime.errors import StoreUnavailable
from chronos_runtime.ids import Worker
from chronos_runtime.inflight import Inflight
from chronos_runtime.job import Finish, Job
from chronos_runtime.metrics import Metrics
from chronos_runtime.nudge import Mailbox, Nudge
from chronos_runtime.store import Wanted
from chronos_runtime.store.offers import Offer, OfferStore
from chronos_runtime.supervisor import Supervisor
from tests.actors.bench import make_jobs, on_both_loops, restarts, running, sample
from tests.actors.flaky import After, Before, FlakyStore, Hold
from tests.eventually import eventually
from tests.store.world import NO_FRONTIER, new_job

pytestmark = on_both_loops

AWAY = StoreUnavailable("away")
LEASE_S = 30.0


class FlakyOffers:
    """Offers that fail when their store is told to."""

    def __init__(self, store: FlakyStore, offers: OfferStore) -> None:
        self._store = store
        self._offers = offers
        self.over: list[list[UUID]] = []

    async def place_offer(self, offer: Offer, over: Sequence[UUID] = ()) -> None:
        self.over.append(list(over))
        place = self._offers.place_offer
        await self._store._call("place_offer", 1, lambda: place(offer, over), None)

    async def withdraw_offer(self, worker: UUID, token: UUID) -> bool:
        withdraw = self._offers.withdraw_offer
        return await self._store._call("withdraw_offer", 1, lambda: withdraw(worker, token), False)

    async def take_job(
        self, id: UUID, token: UUID, *, lease_s: float, asked_at: float
    ) -> Job | None:
        async def take() -> Job | None:
            return await self._offers.take_job(id, token, lease_s=lease_s, asked_at=asked_at)

        return await self._store._call("take_job", 1, take, None)


class Stand:
    """A taker, a listener that can be lost, and a producer."""

    def __init__(self, concurrency: int = 2) -> None:
        self.now = 1_800_000_000.0
        self.store = FlakyStore(clock=lambda: self.now)
        self.offers = FlakyOffers(self.store, self.store.offers)
        self.metrics = Metrics()
        self.inflight = Inflight(100)
        self.inbox: Mailbox[Job] = Mailbox(100)
        self.worker = Worker()
        self.presence: int | None = None
        self.is_drained = True
        self.scheduled = Nudge()
        self.taker = Taker(
            ClaimerConfig(),
            _WithOffers(self.store, self.offers),  # type: ignore[arg-type]
            self.inflight,
            self.metrics,
            worker=self.worker,
            topics=["default"],
            kinds=["greet"],
            concurrency=concurrency,
            lease_s=LEASE_S,
            inbox=self.inbox,
            is_drained=lambda: self.is_drained,
            presence=lambda: self.presence,
            scheduled=self.scheduled,
        )

    @asynccontextmanager
    async def listening(self, presence: int = 7) -> AsyncIterator[None]:
        """The process hears, and is idle."""

        async def listen() -> None:
            await self.store.listen(
                lambda channel, payload: (
                    self.taker.hear(payload) if channel == "chronos_handed" else None
                ),
                presence=presence,
                probe_s=3_600.0,
                probe_deadline_s=10.0,
            )

        await self.store.mark_idle(self.worker.id, ["default"])
        async with running(listen):
            await wait_all_tasks_blocked()
            self.presence = presence
            yield
        self.presence = None

    async def enqueue(self) -> UUID:
        """One plain job."""
        job = new_job()
        await self.store.enqueue_jobs([job])
        return job.id

    async def state(self, id: UUID) -> tuple[str, int]:
        """A job's state and its attempts."""
        record = (await self.store.get_jobs([id]))[id]
        return record.state, record.attempt

    @property
    def calls(self) -> dict[str, int]:
        """How often each statement of the taker was sent."""
        return {name: len(sizes) for name, sizes in self.store.calls.items()}

    def fill(self, slots: int) -> None:
        """So many handlers run, of jobs that a claim brought."""
        for _ in self.inflight.claim(make_jobs(slots)):
            self.inflight.start()


class _WithOffers:
    """A store whose offers fail as they are told to; producers meet the real ones."""

    def __init__(self, store: FlakyStore, offers: FlakyOffers) -> None:
        self._store = store
        self.offers = offers

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)


async def test_a_job_handed_over_starts_without_a_claim() -> None:
    stand = Stand()
    async with stand.listening(), running(stand.taker.run):
        await wait_all_tasks_blocked()
        id = await stand.enqueue()
        [job] = await stand.inbox.take()
    assert (job.id, job.attempt) == (id, 1)
    assert (stand.inflight.claimed, stand.inflight.queued) == (1, 1)
    labels = {"topic": "default", "kind": "greet"}
    assert sample(stand.metrics, "chronos_claimer_claimed_jobs_total", **labels) == 1
    assert sample(stand.metrics, "chronos_taker_rows_total") == 1
    assert "claim_jobs" not in stand.calls


async def test_the_next_is_offered_for_when_nothing_runs_any_more() -> None:
    stand = Stand()
    async with stand.listening(), running(stand.taker.run):
        for count in (1, 2, 3):
            stand.taker.consider()
            await wait_all_tasks_blocked()
            assert stand.calls["place_offer"] == count
            await stand.enqueue()
            [job] = await stand.inbox.take()
            stand.taker.consider()
            await wait_all_tasks_blocked()
            assert stand.calls["place_offer"] == count, "while it is queued"
            stand.inflight.start()
            stand.taker.consider()
            await wait_all_tasks_blocked()
            assert stand.calls["place_offer"] == count, "while it runs"
            stand.inflight.stop(job)
            await stand.store.finish_jobs([Finish(job, "succeeded", 0.0)])
            stand.inflight.settle([job.id])
    assert [len(over) for over in stand.offers.over] == [0, 1, 1], "claims that are over"
    assert len(stand.inflight.claims_over) == 1


@pytest.mark.parametrize("lacks", ["a listener", "an empty queue", "an idle process"])
async def test_nothing_is_offered_without(lacks: str) -> None:
    stand = Stand()
    async with stand.listening(), running(stand.taker.run) as _:
        pass
    placed = stand.calls["place_offer"]
    async with stand.listening():
        match lacks:
            case "a listener":
                stand.presence = None
            case "an empty queue":
                stand.is_drained = False
            case "an idle process":
                stand.fill(1)
        assert await stand.taker.take_once() == 0
    assert stand.calls["place_offer"] == placed


async def test_one_offer_at_a_time_is_out() -> None:
    stand = Stand()
    async with stand.listening():
        for _ in range(3):
            await stand.taker.take_once()
    assert stand.calls["place_offer"] == 1
    assert "withdraw_offer" not in stand.calls


async def test_an_offer_stays_while_a_slot_is_free_and_is_withdrawn_when_none_is() -> None:
    stand = Stand(concurrency=2)
    async with stand.listening(), running(stand.taker.run):
        await wait_all_tasks_blocked()
        stand.fill(1)
        stand.taker.consider()
        await wait_all_tasks_blocked()
        assert "withdraw_offer" not in stand.calls
        stand.fill(1)
        stand.taker.consider()
        await wait_all_tasks_blocked()
        assert stand.calls["withdraw_offer"] == 1
        id = await stand.enqueue()
        assert await stand.state(id) == ("ready", 0)


async def test_a_job_that_no_slot_is_free_for_goes_back_at_once() -> None:
    stand = Stand(concurrency=1)
    async with stand.listening(), running(stand.taker.run):
        await wait_all_tasks_blocked()
        stand.fill(1)
        id = await stand.enqueue()
        await wait_all_tasks_blocked()
        assert await stand.state(id) == ("ready", 0)
    assert len(stand.inbox) == 0


async def test_a_job_that_was_heard_of_too_late_goes_back() -> None:
    stand = Stand()
    async with stand.listening():
        await stand.taker.take_once()
        id = await stand.enqueue()
        stand.now += LEASE_S / 2
        assert await stand.taker.take_once() == 0
        assert await stand.state(id) == ("ready", 0)
    assert len(stand.inbox) == 0


async def test_another_listener_gets_another_offer() -> None:
    stand = Stand()
    async with stand.listening(presence=7):
        await stand.taker.take_once()
    async with stand.listening(presence=8):
        await stand.taker.take_once()
        assert (stand.calls["withdraw_offer"], stand.calls["place_offer"]) == (1, 2)
        id = await stand.enqueue()
        assert await stand.taker.take_once() == 1
    [job] = await stand.inbox.take()
    assert job.id == id


async def test_a_job_nobody_heard_of_goes_back_when_the_listener_is_lost() -> None:
    stand = Stand()
    async with stand.listening():
        await stand.taker.take_once()
        stand.taker.hear = lambda payload: None  # type: ignore[method-assign]
        id = await stand.enqueue()
    assert await stand.state(id) == ("running", 1)
    assert await stand.taker.take_once() == 0
    assert await stand.state(id) == ("ready", 0)


@pytest.mark.parametrize("fault", [Before(AWAY), After(AWAY)])
async def test_an_offer_whose_reply_was_lost_is_withdrawn_and_made_anew(
    fault: Before | After,
) -> None:
    stand = Stand()
    stand.store.fail("place_offer", fault)
    supervisor = Supervisor(SupervisorConfig(backoff_s=0.001), stand.metrics)
    async with stand.listening(), running(lambda: supervisor.run(stand.taker)):
        await eventually(lambda: stand.calls.get("place_offer") == 2)
        await wait_all_tasks_blocked()
        assert stand.calls["withdraw_offer"] == 1
        id = await stand.enqueue()
        [job] = await stand.inbox.take()
    assert job.id == id
    assert restarts(stand.metrics, "taker") == 1


@pytest.mark.parametrize("statement", ["take_job", "release_claim"])
async def test_a_job_handed_over_is_not_forgotten_over_an_outage(statement: str) -> None:
    stand = Stand()
    stand.store.fail(statement, Before(AWAY), Before(AWAY))
    supervisor = Supervisor(SupervisorConfig(backoff_s=0.001), stand.metrics)
    async with stand.listening(), running(lambda: supervisor.run(stand.taker)):
        await wait_all_tasks_blocked()
        if statement == "release_claim":
            stand.fill(2)  # No slot is free: it has to be given back.
        id = await stand.enqueue()
        if statement == "take_job":
            [job] = await stand.inbox.take()
            assert job.id == id
        else:
            await eventually(lambda: stand.calls.get("release_claim") == 3)
            await wait_all_tasks_blocked()
            assert await stand.state(id) == ("ready", 0)
    assert restarts(stand.metrics, "taker") == 2


async def test_who_is_stopped_takes_its_offer_along() -> None:
    stand = Stand()
    async with stand.listening():
        async with running(stand.taker.run):
            await wait_all_tasks_blocked()
        assert stand.calls["withdraw_offer"] == 1
        id = await stand.enqueue()
        assert await stand.state(id) == ("ready", 0)


async def test_who_is_stopped_gives_back_what_it_has_not_taken() -> None:
    stand = Stand()
    async with stand.listening():
        async with running(stand.taker.run):
            await wait_all_tasks_blocked()
            stand.taker.hear = lambda payload: None  # type: ignore[method-assign]
            id = await stand.enqueue()
        assert await stand.state(id) == ("ready", 0)


async def test_who_cannot_withdraw_when_stopped_can_do_it_later() -> None:
    stand = Stand()
    stand.store.fail("withdraw_offer", Before(AWAY))
    async with stand.listening():
        async with running(stand.taker.run):
            await wait_all_tasks_blocked()
        id = await stand.enqueue()
        assert await stand.state(id) == ("running", 1)
        await stand.taker.withdraw()
        assert await stand.state(id) == ("ready", 0)


async def test_a_job_whose_id_still_stands_here_is_given_back_for_a_moment() -> None:
    stand = Stand()
    job = new_job()
    async with stand.listening():
        await stand.store.enqueue_jobs([job])
        wanted = [Wanted("default", 1, NO_FRONTIER)]
        [old] = await stand.store.claim_jobs(
            stand.worker.next_token(), wanted, kinds=["greet"], room=1, lease_s=30, claimed_at=0.0
        )
        stand.inflight.claim([old])
        stand.inflight.start()
        stand.inflight.stop(old)
        await stand.store.finish_jobs([Finish(old, "succeeded", 0.0)])  # Not settled yet.
        await stand.taker.take_once()
        await stand.store.enqueue_jobs([job])
        assert await stand.taker.take_once() == 0
        assert await stand.state(job.id) == ("scheduled", 0)
    assert await stand.scheduled.wait(0.0)
    assert len(stand.inbox) == 0


@pytest.mark.parametrize("payload", ["", "nobody", f"{UUID(int=1)}", f"{UUID(int=1)} x", "a b c"])
async def test_bad_word_of_a_job_is_ignored(payload: str, caplog: pytest.LogCaptureFixture) -> None:
    stand = Stand()
    async with stand.listening():
        await stand.taker.take_once()
        stand.taker.hear(payload)
        assert await stand.taker.take_once() == 0
    assert "bad hand-over" in caplog.text
    assert "take_job" not in stand.calls


async def test_word_of_an_earlier_offer_is_ignored() -> None:
    stand = Stand()
    async with stand.listening():
        await stand.taker.take_once()
        stand.taker.hear(f"{UUID(int=1)} {UUID(int=2)}")
        assert await stand.taker.take_once() == 0
    assert "take_job" not in stand.calls


async def test_a_job_being_taken_when_stopped_is_not_lost() -> None:
    stand = Stand()
    taking = anyio.Event()
    stand.store.fail("take_job", Hold(taking))
    async with stand.listening():
        async with running(stand.taker.run):
            await wait_all_tasks_blocked()
            id = await stand.enqueue()
            await wait_all_tasks_blocked()
            assert stand.calls["take_job"] == 1
        assert await stand.state(id) == ("ready", 0)
