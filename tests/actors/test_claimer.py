"""The claimer leases what there is room for, looks everywhere in time, and never hoards."""

import itertools
import random
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import anyio
import anyio.lowlevel
import pytest
from anyio import wait_all_tasks_blocked

from chronos_runtime.actors.claimer import Claimer
from chronos_runtime.actors.executor import Executor
from chronos_runtime.config import ClaimerConfig, ExecutorConfig, SupervisorConfig
from chronos_runtime.errors import StoreUnavailable
from chronos_runtime.frontier import Frontier
from chronos_runtime.ids import Worker
from chronos_runtime.inflight import Inflight
from chronos_runtime.job import Finish, Job, Return
from chronos_runtime.metrics import Metrics
from chronos_runtime.nudge import Mailbox, Nudge
from chronos_runtime.outbox import Outbox
from chronos_runtime.store import Wanted
from chronos_runtime.supervisor import Supervisor
from tests.actors.bench import (
    DEADLINE_S,
    ListeningNudge,
    make_handler,
    on_both_loops,
    running,
    sample,
)
from tests.actors.flaky import After, Before, FlakyStore, Hold
from tests.eventually import eventually
from tests.store.world import FIRST, new_job

pytestmark = on_both_loops

AWAY = StoreUnavailable("away")
CLAIMER_CLOCK = "chronos_runtime.actors.claimer.time"


class WatchedStore(FlakyStore):
    """Remembers what every claim asked for, and takes as long as it is told by `clock`."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[list[Wanted]] = []
        self.kinds: list[str] = []
        self.over: list[list[UUID]] = []
        self.clock: Clock | None = None
        self.costs_s: list[float] = []
        """How long the next claims take, by the claimer's clock."""

    async def claim_jobs(
        self,
        token: UUID,
        wanted: Sequence[Wanted],
        *,
        kinds: Sequence[str],
        room: int,
        lease_s: float,
        claimed_at: float,
        over: Sequence[UUID] = (),
    ) -> list[Job]:
        self.asked.append(
            [Wanted(one.topic, one.room, list(one.frontiers), one.ends) for one in wanted]
        )
        self.kinds = list(kinds)
        if self.clock is not None and self.costs_s:
            self.clock.now += self.costs_s.pop(0)
        self.over.append(list(over))
        return await super().claim_jobs(
            token, wanted, kinds=kinds, room=room, lease_s=lease_s, claimed_at=claimed_at, over=over
        )

    @property
    def looks_behind(self) -> list[bool]:
        """Which claims began at zero in all topics they asked for."""
        return [not any(any(one.frontiers) for one in wanted) for wanted in self.asked]

    @property
    def leave_out_new(self) -> list[bool]:
        """Which claims looked behind the frontier only."""
        return [all(one.ends is not None for one in wanted) for wanted in self.asked]


class Clock:
    """The claimer's own clock, moved by hand."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        return self.now


class Stand:
    """A claimer on a store in memory; jobs it claims end when the test says so."""

    def __init__(
        self,
        topics: Sequence[str] = ("default",),
        *,
        concurrency: int = 10,
        limits: dict[str, int] | None = None,
        capacity: int = 1_000,
        hears: bool = False,
        clock: Callable[[], float] = time.monotonic,
        **config: Any,
    ) -> None:
        self.store = WatchedStore()
        self.worker = Worker()
        self.metrics = Metrics()
        self.inflight = Inflight(capacity, limits or (), clock)
        self.inbox: Mailbox[Job] = Mailbox(capacity)
        self.outbox = Outbox(capacity)
        self.nudge, self.scheduled = Nudge(), Nudge()
        self.hears = hears
        self.concurrency = concurrency
        self.limits = limits or {}
        self.claimer = Claimer(
            ClaimerConfig(**({"poll_s": 3_600.0, "idle_poll_s": 3_600.0} | config)),
            self.store,
            self.inflight,
            self.metrics,
            worker=self.worker,
            topics=topics,
            kinds=["greet"],
            concurrency=concurrency,
            topic_concurrency=self.limits,
            lease_s=30.0,
            inbox=self.inbox,
            nudge=self.nudge,
            scheduled=self.scheduled,
            hears=lambda: self.hears,
            changed=self._note_change,
        )
        self.changes = 0

    def _note_change(self) -> None:
        self.changes += 1

    async def enqueue(self, count: int = 1, **changes: Any) -> list[UUID]:
        jobs = [new_job(**changes) for _ in range(count)]
        await self.store.enqueue_jobs(jobs)
        return [job.id for job in jobs]

    async def taken(self, count: int) -> list[Job]:
        """The next jobs in the inbox, at least `count`."""
        jobs: list[Job] = []
        with anyio.fail_after(DEADLINE_S):
            while len(jobs) < count:
                jobs += await self.inbox.take()
        return jobs

    async def end_all(self) -> list[Job]:
        """Run to their end what is in the inbox."""
        jobs = await self.inbox.take() if len(self.inbox) else []
        await self.end(*jobs)
        return jobs

    async def give_back(self, job: Job) -> None:
        """Let a claimed job return to where it stood."""
        self.inflight.start()
        self.inflight.stop(job)
        await self.store.return_jobs([Return(job, "release")])
        self.inflight.settle([job.id])

    async def end(self, *jobs: Job) -> None:
        """Run jobs to their end, as executor and reporter do."""
        for job in jobs:
            self.inflight.start()
            self.inflight.stop(job)
        await self.store.finish_jobs([Finish(job, "succeeded", 0.1) for job in jobs])
        self.inflight.settle([job.id for job in jobs])

    def executor(self, leave: anyio.Event) -> Executor:
        """An executor whose handlers stay until `leave` is set."""

        async def wait(job: Job, payload: object) -> None:
            await leave.wait()

        return Executor(
            ExecutorConfig(concurrency=self.concurrency, topic_concurrency=self.limits),
            {"greet": make_handler(wait, kind="greet")},
            self.inflight,
            self.metrics,
            worker=self.worker.name,
            inbox=self.inbox,
            outbox=self.outbox,
            room=self.claimer.hear_of_room,
        )

    async def supervised(self) -> None:
        config = SupervisorConfig(backoff_s=0.0001, backoff_max_s=0.0001)
        await Supervisor(config, self.metrics).run(self.claimer)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Time stands still for the claimer until the test moves it."""
    clock = Clock()
    monkeypatch.setattr(CLAIMER_CLOCK, SimpleNamespace(monotonic=clock.monotonic))
    return clock


STRETCH = 3


@pytest.fixture
def short_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look goes over no more than three seqs."""
    monkeypatch.setattr("chronos_runtime.frontier._STRETCH", STRETCH)
    monkeypatch.setattr(Frontier, "_next_stretch", lambda *_: STRETCH)


@pytest.mark.parametrize("concurrency", [4, 100])
async def test_slow_jobs_are_not_hoarded(concurrency: int) -> None:
    stand = Stand(concurrency=concurrency)
    await stand.enqueue(2_000)
    leave = anyio.Event()
    async with running(stand.claimer.run), running(stand.executor(leave).run):
        await eventually(lambda: stand.inflight.running == concurrency)
        for _ in range(5):
            stand.nudge()
            await wait_all_tasks_blocked()
            assert stand.inflight.queued <= concurrency / 10


async def test_fast_jobs_come_in_batches_larger_than_the_slots() -> None:
    stand = Stand(concurrency=5)
    await stand.enqueue(900)
    leave = anyio.Event()
    leave.set()

    async def settle() -> None:
        while outcomes := await stand.outbox.take():
            stand.inflight.settle([one.job.id for one in outcomes])
            stand.nudge()

    async with (
        running(stand.executor(leave).run),
        running(settle),
        running(stand.claimer.run),
    ):
        await eventually(lambda: stand.inflight.settled == 900)
    assert max(stand.store.calls["claim_jobs"]) > 25
    assert stand.metrics.claimed.value("default", "greet") == 900


async def test_a_claim_asks_for_as_much_as_there_is_room() -> None:
    stand = Stand(concurrency=7)
    await stand.enqueue(20)
    async with running(stand.claimer.run):
        jobs = await stand.taken(7)
        await wait_all_tasks_blocked()
        assert stand.store.calls["claim_jobs"] == [7]
        stand.inflight.start()
        stand.inflight.stop(jobs[0])  # One slot is free; nobody knows yet how fast they become so.
        stand.nudge()
        await stand.taken(1)
    assert (len(jobs), stand.store.kinds) == (7, ["greet"])


async def test_no_more_is_claimed_than_the_registry_has_room_for() -> None:
    stand = Stand(concurrency=100, capacity=5)
    await stand.enqueue(20)
    async with running(stand.claimer.run):
        jobs = await stand.taken(5)
        await wait_all_tasks_blocked()
        stand.nudge()
        await wait_all_tasks_blocked()
        assert len(stand.inflight) == 5
        await stand.end(*jobs)
        stand.nudge()
        await stand.taken(5)


async def test_no_claim_is_larger_than_a_batch() -> None:
    stand = Stand(concurrency=100, batch_max=8)
    await stand.enqueue(20)
    async with running(stand.claimer.run):
        await stand.taken(20)
    assert stand.store.calls["claim_jobs"][:3] == [8, 8, 8]


async def test_a_topic_with_a_limit_is_claimed_up_to_it_and_not_ahead() -> None:
    stand = Stand(["narrow", "wide"], limits={"narrow": 2})
    await stand.enqueue(20, topic="narrow")
    await stand.enqueue(4, topic="wide")
    async with running(stand.claimer.run):
        jobs = await stand.taken(6)
        await wait_all_tasks_blocked()
        assert sorted(job.topic for job in jobs) == ["narrow"] * 2 + ["wide"] * 4
        await stand.end(next(job for job in jobs if job.topic == "narrow"))
        stand.nudge()
        [more] = await stand.taken(1)
        assert more.topic == "narrow"


def listen_to(stand: Stand) -> ListeningNudge:
    stand.nudge = stand.claimer._nudge = ListeningNudge()
    return stand.nudge


async def test_a_claimer_whose_topics_are_all_at_their_limit_rests() -> None:
    stand = Stand(["narrow"], limits={"narrow": 2}, poll_s=0.5)
    nudge = listen_to(stand)
    await stand.enqueue(20, topic="narrow")
    async with running(stand.claimer.run):
        await stand.taken(2)
        await wait_all_tasks_blocked()
        stand.claimer.look_behind()
        await wait_all_tasks_blocked()
    assert stand.store.calls["claim_jobs"] == [10]
    assert nudge.waits == [0.5, 0.5]
    assert stand.metrics.actors["claimer"].is_resting


@pytest.mark.parametrize("order", [["a", "b", "c"], ["c", "a", "b"]])
async def test_topics_take_turns_when_there_is_room_for_one_job(order: list[str]) -> None:
    stand = Stand(order)
    for topic in order:
        await stand.enqueue(10, topic=topic)
    for _ in range(9):
        assert await stand.claimer.claim_once(1) == 1
    topics = [job.topic for job in await stand.taken(9)]
    assert sorted(topics[:3]) == ["a", "b", "c"]
    assert topics == topics[:3] * 3


async def test_a_claim_goes_on_where_the_last_one_ended() -> None:
    stand = Stand()
    await stand.enqueue(3, priority=2)
    await stand.enqueue(3, priority=7)
    for _ in range(3):
        await stand.claimer.claim_once(2)
    seqs = [job.seq for job in await stand.taken(6)]
    assert stand.store.looks_behind == [True, False, False]
    [wanted] = stand.store.asked[-1]
    assert (wanted.frontiers[2], wanted.frontiers[7]) == (seqs[2], seqs[3])
    assert not any(wanted.frontiers[:2])


async def test_every_topic_of_a_claim_has_a_frontier_of_its_own() -> None:
    stand = Stand(["a", "b"])
    for topic in ("a", "b"):
        await stand.enqueue(1, topic=topic)
    await stand.claimer.claim_once(2)  # One of each.
    await stand.enqueue(2, topic="a")
    await stand.claimer.claim_once(2)
    seqs = {job.topic: job.seq for job in (await stand.taken(4))[:2]}
    assert {one.topic: one.frontiers[5] for one in stand.store.asked[-1]} == seqs


async def test_what_returns_behind_the_frontier_is_looked_for(clock: Clock) -> None:
    stand = Stand()
    await stand.enqueue(10)
    await stand.claimer.claim_once(4)
    first, *_ = await stand.taken(4)
    await stand.store.release_claim(first.lease_token)
    await stand.claimer.claim_once(1)
    [ahead] = await stand.taken(1)
    assert ahead.seq > first.seq  # Nobody said that something came back.
    stand.inflight.unqueue([first])
    stand.inflight.settle([first.id])
    stand.claimer.look_behind()
    assert await stand.nudge.wait(0.0)
    await stand.claimer.claim_once(1)
    [again] = await stand.taken(1)
    assert again.id == first.id


async def test_a_look_behind_that_is_wanted_during_a_claim_is_not_forgotten(clock: Clock) -> None:
    stand = Stand()
    await stand.enqueue(10)
    slow = anyio.Event()
    stand.store.fail("claim_jobs", Hold(slow))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stand.claimer.claim_once, 1)
        await wait_all_tasks_blocked()
        stand.claimer.look_behind()
        slow.set()
    await stand.claimer.claim_once(1)
    await stand.claimer.claim_once(1)
    assert stand.store.looks_behind == [True, True, False]


async def test_a_look_behind_that_failed_is_tried_again(clock: Clock) -> None:
    stand = Stand()
    await stand.enqueue(10)
    await stand.claimer.claim_once(1)
    stand.claimer.look_behind()
    stand.store.fail("claim_jobs", Before(AWAY))
    with pytest.raises(StoreUnavailable):
        await stand.claimer.claim_once(1)
    await stand.claimer.claim_once(1)
    await stand.claimer.claim_once(1)
    assert stand.store.looks_behind == [True, True, True, False]


async def test_a_look_behind_needs_no_reason_after_a_while(clock: Clock) -> None:
    stand = Stand(rescan_s=5.0)
    await stand.enqueue(10)
    for seconds in (0.0, 1.0, 4.0, 0.1, 1.0):
        clock.now += seconds
        await stand.claimer.claim_once(1)
    assert stand.store.looks_behind == [True, False, False, True, False]
    assert sample(stand.metrics, "chronos_claimer_rescans_total") == 2


@pytest.mark.parametrize(("cost_s", "pause_s"), [(0.01, 0.5), (0.1, 5.0), (60.0, 60.0)])
async def test_looking_behind_takes_a_fiftieth_of_the_time(
    clock: Clock, cost_s: float, pause_s: float
) -> None:
    """But it never waits longer than three times the pause of the look that needs no reason."""
    stand = Stand(rescan_s=20.0)
    round_trip_s = 0.02
    stand.store.clock = clock
    stand.store.costs_s = [round_trip_s, round_trip_s, 2 * round_trip_s + cost_s]
    await stand.enqueue(10)
    await stand.claimer.claim_once(1)
    await stand.claimer.claim_once(1)
    stand.claimer.look_behind()
    await stand.claimer.claim_once(1)
    assert stand.store.looks_behind == [True, False, True]
    for part in (0.3, 0.6):
        clock.now += part * pause_s
        stand.claimer.look_behind()
        await stand.claimer.claim_once(1)
    assert stand.store.looks_behind[3:] == [False, False]
    clock.now += 0.2 * pause_s
    await stand.claimer.claim_once(1)
    assert stand.store.looks_behind[-1]


async def test_a_slow_network_does_not_make_looking_behind_dear(clock: Clock) -> None:
    stand = Stand()
    stand.store.clock = clock
    stand.store.costs_s = [0.5, *[0.05] * 9]  # The first claim opens the connection.
    await stand.enqueue(10)
    for _ in range(5):
        stand.claimer.look_behind()
        await stand.claimer.claim_once(1)
    assert stand.store.looks_behind == [True] * 5


async def test_one_look_that_met_a_busy_machine_does_not_count(clock: Clock) -> None:
    stand = Stand()
    stand.store.clock = clock
    stand.store.costs_s = [0.0, 0.0, 0.01, 2.0, *[0.01] * 9]
    await stand.enqueue(20)
    await stand.claimer.claim_once(1)
    for _ in range(4):
        await stand.claimer.claim_once(1)
        stand.claimer.look_behind()
        clock.now += 1.0  # More than fifty times the usual cost, less than that of the one.
    assert stand.store.looks_behind == [True, False, True, True, True]


async def far_on(stand: Stand, jobs: int = 20) -> list[Job]:
    """Claim that many jobs, so that a round takes several looks; they run."""
    await stand.enqueue(jobs)
    await stand.claimer.claim_once(jobs)
    await stand.claimer.claim_once(1)  # Short: it asks for a round.
    return await stand.taken(jobs)


@pytest.mark.usefixtures("short_looks")
@pytest.mark.parametrize("place", [0, 1, 9, 18, 19])
async def test_what_returns_anywhere_behind_the_frontier_is_found(clock: Clock, place: int) -> None:
    stand = Stand()
    jobs = await far_on(stand)
    await stand.give_back(jobs[place])
    stand.claimer.look_behind()
    for _ in range(2 * len(jobs) // STRETCH + 1):
        await stand.claimer.claim_once(5)
    [again] = await stand.taken(1)
    assert again.id == jobs[place].id


@pytest.mark.usefixtures("short_looks")
async def test_what_returns_behind_a_round_under_way_is_found_by_another(clock: Clock) -> None:
    stand = Stand()
    jobs = await far_on(stand)
    await stand.claimer.claim_once(5)  # The round has begun, and has been where this one stood.
    await stand.give_back(jobs[-1])
    stand.claimer.look_behind()
    for _ in range(4 * len(jobs) // STRETCH):
        await stand.claimer.claim_once(5)
    [again] = await stand.taken(1)
    assert again.id == jobs[-1].id


@pytest.mark.usefixtures("short_looks")
async def test_new_jobs_are_claimed_between_the_looks_of_a_round(clock: Clock) -> None:
    stand = Stand(concurrency=100)
    await far_on(stand)
    await stand.claimer.claim_once(5)
    asked = len(stand.store.asked)
    for before in range(20, 26):
        [id] = await stand.enqueue(1)
        await stand.claimer.claim_once(5)
        assert stand.inflight.claimed == before, "it looked behind only"
        await stand.claimer.claim_once(5)
        assert [job.id for job in await stand.taken(1)] == [id]
    assert stand.store.leave_out_new[asked:] == [True, False] * 6


@pytest.mark.usefixtures("short_looks")
async def test_a_look_that_leaves_out_new_jobs_says_nothing_of_the_queue(clock: Clock) -> None:
    stand = Stand(hears=True, concurrency=100)
    await far_on(stand)
    drained = []
    for _ in range(3):
        await stand.claimer.claim_once(5)
        drained.append(stand.claimer.is_drained)
    assert stand.store.leave_out_new[-3:] == [False, True, False]
    assert drained == [True, False, True]


@pytest.mark.usefixtures("short_looks")
async def test_a_claimer_rests_only_after_a_claim_that_looked_for_new_jobs(clock: Clock) -> None:
    """What comes before the mark is notified to nobody, and must not wait for the next look."""
    stand = Stand(hears=True, concurrency=100)
    nudge = listen_to(stand)
    await far_on(stand)
    async with running(stand.claimer.run):
        for _ in range(30):
            await wait_all_tasks_blocked()
            assert not stand.store.leave_out_new[-1]
            stand.nudge()
    assert any(stand.store.leave_out_new)
    assert nudge.waits[0] == 0.001, "the round goes on at once where that costs nothing"
    assert stand.store.calls["mark_idle"] == [1]


@pytest.mark.usefixtures("short_looks")
async def test_a_round_ends_on_a_quiet_queue(clock: Clock) -> None:
    stand = Stand(hears=True, concurrency=100)
    nudge = listen_to(stand)
    await far_on(stand)
    async with running(stand.claimer.run):
        await wait_all_tasks_blocked()
        for _ in range(30):
            if nudge.waits[-1] == 3_600.0:
                break
            stand.nudge()
            await wait_all_tasks_blocked()
    looks = sum(stand.store.leave_out_new)
    assert looks == 20 // STRETCH
    assert len(stand.store.asked) <= 2 * looks + 5


async def test_on_a_quiet_queue_a_job_costs_two_claims_however_many_came_before(
    clock: Clock,
) -> None:
    """One that finds it, and a look behind the frontier; not more of these."""
    stand = Stand(hears=True)
    listen_to(stand)
    stand.store._jobs._seqs = itertools.count(100_000_000)
    async with running(stand.claimer.run):
        claims = []
        for _ in range(6):
            await wait_all_tasks_blocked()
            before = len(stand.store.asked)
            await stand.enqueue(1)
            stand.nudge()
            await stand.end(*await stand.taken(1))
            await wait_all_tasks_blocked()
            while stand.claimer._frontier.wants_look:
                stand.nudge()
                await wait_all_tasks_blocked()
            claims.append(len(stand.store.asked) - before)
    assert claims[2:] == [2] * 4, "the first round finds out that there is nothing to step over"
    assert max(claims) < 12


@pytest.mark.usefixtures("short_looks")
async def test_a_look_of_a_round_that_failed_is_tried_again(clock: Clock) -> None:
    stand = Stand()
    jobs = await far_on(stand)
    await stand.claimer.claim_once(5)
    await stand.give_back(jobs[-5])  # In the very stretch that comes next.
    stand.store.fail("claim_jobs", After(AWAY))
    with pytest.raises(StoreUnavailable):
        await stand.claimer.claim_once(5)
    await stand.claimer.claim_once(5)
    [again] = await stand.taken(1)
    assert again.id == jobs[-5].id
    assert stand.store.asked[-1] == stand.store.asked[-2]
    assert stand.claimer._frontier.is_suspect, "what else the failure hid is looked for"


@pytest.mark.usefixtures("short_looks")
@pytest.mark.parametrize("seed", range(15))
async def test_whatever_returns_behind_the_frontier_is_found_in_a_bounded_number_of_claims(
    clock: Clock, seed: int
) -> None:
    """Of all topics and priorities, told or not, in the middle of a round or not, with failures."""
    chance = random.Random(seed)
    stand = Stand(["a", "b", "narrow"], limits={"narrow": 2}, concurrency=100)
    held: list[Job] = []
    for _ in range(60):
        match chance.randrange(6):
            case 0 | 1:
                topic = chance.choice(["a", "b", "narrow"])
                await stand.enqueue(
                    chance.randint(1, 9), topic=topic, priority=chance.randrange(10)
                )
            case 2 if held:
                await stand.give_back(held.pop(chance.randrange(len(held))))
                if chance.random() < 0.5:
                    stand.claimer.look_behind()
            case 3:
                fault = Before(AWAY) if chance.random() < 0.5 else After(AWAY)
                stand.store.fail("claim_jobs", fault)
                with suppress(StoreUnavailable):
                    await stand.claimer.claim_once(5)
            case _:
                with suppress(StoreUnavailable):
                    await stand.claimer.claim_once(chance.randint(1, 9))
        clock.now += chance.random()
        held += await stand.inbox.take() if len(stand.inbox) else []
    await stand.end(*held)
    clock.now += 5.1
    highest = max(max(one.frontiers) for wanted in stand.store.asked for one in wanted)
    waiting = sum(one.jobs for one in await stand.store.survey_topics(1_000))
    # The rest of a round and a whole one, each look with a claim, and one more for each job found.
    for _ in range(4 * (highest // STRETCH + 2) + 2 * waiting):
        await stand.claimer.claim_once(5)
        await stand.end_all()
    assert [one.jobs for one in await stand.store.survey_topics(1_000) if one.jobs] == []


@pytest.mark.parametrize("hears", [True, False])
async def test_new_jobs_are_found_while_looking_behind_is_too_dear(
    clock: Clock, hears: bool
) -> None:
    stand = Stand(poll_s=0.5, hears=hears)
    nudge = listen_to(stand)
    stand.store.clock, stand.store.costs_s = clock, [0.0, 0.0, 0.1, *[0.0] * 9]
    await stand.claimer.claim_once(1)
    await stand.claimer.claim_once(1)
    stand.claimer.look_behind()
    await stand.claimer.claim_once(1)
    async with running(stand.claimer.run):
        await wait_all_tasks_blocked()
        stand.claimer.look_behind()
        await wait_all_tasks_blocked()
    if hears:  # Whoever enqueues says so.
        assert stand.store.calls["mark_idle"] == [1]
        assert nudge.waits[-1] == pytest.approx(5.0)
    else:
        assert nudge.waits[-1] == 0.5  # Not the five seconds until looking behind is affordable.


async def test_a_short_claim_looks_behind_before_it_rests() -> None:
    stand = Stand()
    await stand.enqueue(3)
    async with running(stand.claimer.run):
        await stand.taken(3)
        await wait_all_tasks_blocked()
        before = len(stand.store.asked)
        await stand.enqueue(1)
        stand.nudge()
        await stand.taken(1)
        await eventually(lambda: len(stand.store.asked) == before + 2)
        await wait_all_tasks_blocked()
    assert stand.store.looks_behind[before:] == [False, True]


async def test_an_idle_claimer_asks_once_to_be_notified(clock: Clock) -> None:
    stand = Stand(["a", "b"], hears=True)
    listen_to(stand)
    async with running(stand.claimer.run):
        for _ in range(5):
            stand.nudge()
            await wait_all_tasks_blocked()
            clock.now += 10.0
        assert stand.store.calls["mark_idle"] == [2]
        clock.now += 61.0
        for _ in range(4):
            stand.nudge()
            await wait_all_tasks_blocked()
    assert stand.store.calls["mark_idle"] == [2, 2]


async def test_an_idle_claimer_looks_once_more_after_it_asked_to_be_notified() -> None:
    """What was enqueued between the empty claim and the mark notified nobody."""
    stand = Stand(hears=True)
    marked = anyio.Event()
    stand.store.fail("mark_idle", Hold(marked))
    async with running(stand.claimer.run):
        await eventually(lambda: stand.store.calls["mark_idle"])
        await stand.enqueue(1)
        marked.set()
        await stand.taken(1)


async def test_who_hears_nothing_does_not_ask_to_be_notified(clock: Clock) -> None:
    stand = Stand(hears=False)
    listen_to(stand)
    async with running(stand.claimer.run):
        for _ in range(5):
            stand.nudge()
            await wait_all_tasks_blocked()
            clock.now += 100.0
    assert stand.store.calls["mark_idle"] == []


async def test_notifications_are_called_off_under_load(clock: Clock) -> None:
    stand = Stand(hears=True, concurrency=1, clock=clock.monotonic)
    listen_to(stand)
    async with running(stand.claimer.run):
        await wait_all_tasks_blocked()
        assert stand.store.calls["mark_idle"] == [1]
        assert stand.claimer.is_marked
        await stand.enqueue(10)
        for _ in range(4):
            stand.nudge()
            await stand.end(*await stand.taken(1))
            clock.now += 0.9
            assert stand.store.calls["unmark_idle"] == [] or clock.now > 1_002
        await wait_all_tasks_blocked()
    assert stand.store.calls["unmark_idle"] == [1]
    assert not stand.claimer.is_marked


@pytest.mark.usefixtures("short_looks")
async def test_a_look_behind_the_frontier_is_no_load(clock: Clock) -> None:
    """However long ago a claim came back short: nobody looked for new jobs since."""
    stand = Stand(hears=True, concurrency=100)
    listen_to(stand)
    await far_on(stand)
    async with running(stand.claimer.run):
        await wait_all_tasks_blocked()
        for _ in range(10):
            clock.now += 3.0
            stand.nudge()
            await wait_all_tasks_blocked()
    assert stand.store.leave_out_new.count(True) > 5
    assert stand.store.calls["unmark_idle"] == []
    assert stand.claimer.is_marked


async def test_new_jobs_wake_an_idle_claimer_that_hears() -> None:
    stand = Stand(hears=True)

    def heard(channel: str, payload: str) -> None:
        if channel == "chronos_ready":
            stand.nudge()

    async def listen() -> None:
        await stand.store.listen(heard, presence=1, probe_s=3_600, probe_deadline_s=3_600)

    async with running(listen), running(stand.claimer.run):
        await wait_all_tasks_blocked()
        for _ in range(3):
            await stand.enqueue(1)
            await stand.end(*await stand.taken(1))
            await wait_all_tasks_blocked()


@pytest.mark.parametrize(
    ("hears", "limits", "more"),
    [(True, {}, 0), (True, {"another": 1}, 0), (True, {"default": 9}, 1), (False, {}, 1)],
    ids=["hears", "limit-elsewhere", "limit", "hears-nothing"],
)
async def test_room_is_no_news_once_nothing_is_left_and_new_jobs_are_heard_of(
    hears: bool, limits: dict[str, int], more: int, clock: Clock
) -> None:
    stand = Stand(hears=hears, limits=limits)
    listen_to(stand)
    await stand.enqueue(1)
    async with running(stand.claimer.run):
        await stand.taken(1)
        stand.nudge()
        await wait_all_tasks_blocked()
        before, stand.changes = len(stand.store.asked), 0
        stand.claimer.hear_of_room()
        await wait_all_tasks_blocked()
        assert len(stand.store.asked) - before >= more
        assert more or len(stand.store.asked) == before
        assert stand.changes, "what may be offered for now"


async def test_room_that_comes_during_a_claim_is_no_news_after_it_found_nothing(
    clock: Clock,
) -> None:
    stand = Stand(hears=True)
    listen_to(stand)
    async with running(stand.claimer.run):
        await wait_all_tasks_blocked()
        replied = anyio.Event()
        stand.store.fail("claim_jobs", Hold(replied))
        before = len(stand.store.asked)
        stand.nudge()
        await wait_all_tasks_blocked()
        stand.claimer.hear_of_room()
        replied.set()
        await wait_all_tasks_blocked()
    assert len(stand.store.asked) == before + 1


async def test_new_jobs_that_found_no_room_are_claimed_as_soon_as_there_is_some() -> None:
    stand = Stand(hears=True, concurrency=1)
    await stand.enqueue(1)
    await stand.claimer.claim_once(5)  # Jobs ended fast: it asked for more than there are slots.
    [job] = await stand.taken(1)
    async with running(stand.claimer.run):
        await wait_all_tasks_blocked()
        await stand.enqueue(1)
        stand.nudge()  # The only slot is taken.
        await wait_all_tasks_blocked()
        await stand.end(job)
        stand.claimer.hear_of_room()
        await stand.taken(1)


async def test_room_is_told_once_until_the_claimer_looked() -> None:
    stand = Stand()
    await stand.enqueue(3)
    await stand.claimer.claim_once(3)
    stand.inflight.low_water = 2
    assert stand.inflight.start(), "two are queued"
    stand.claimer.hear_of_room()
    assert not stand.inflight.start()


async def test_a_full_claim_makes_room_news_again(clock: Clock) -> None:
    stand = Stand(hears=True, concurrency=2)
    listen_to(stand)
    async with running(stand.claimer.run):
        await wait_all_tasks_blocked()
        await stand.enqueue(5)
        stand.nudge()
        [first, _] = await stand.taken(2)
        await wait_all_tasks_blocked()
        await stand.end(first)
        stand.claimer.hear_of_room()
        await stand.taken(3)


@pytest.mark.parametrize(("hears", "expected"), [(True, 10.0), (False, 0.5)])
async def test_who_hears_polls_slowly_and_who_does_not_polls_fast(
    clock: Clock, hears: bool, expected: float
) -> None:
    stand = Stand(hears=hears, poll_s=0.5, idle_poll_s=10.0)
    nudge = listen_to(stand)
    async with running(stand.claimer.run):
        for _ in range(4):
            await wait_all_tasks_blocked()
            stand.nudge()
        await wait_all_tasks_blocked()
    assert max(nudge.waits) == expected


async def test_without_any_notification_the_poll_floor_finds_new_jobs() -> None:
    stand = Stand(poll_s=0.01)
    async with running(stand.claimer.run):
        await wait_all_tasks_blocked()
        await stand.enqueue(1)
        await stand.taken(1)


async def test_a_claim_whose_reply_was_lost_is_given_back_before_the_next_one() -> None:
    stand = Stand()
    ids = await stand.enqueue(3)
    stand.store.fail("claim_jobs", After(AWAY))
    async with running(stand.supervised):
        jobs = await stand.taken(3)
    assert stand.store.calls["release_claim"] == [1]
    assert sorted(job.id for job in jobs) == sorted(ids)
    assert {job.attempt for job in jobs} == {1}
    stand.inflight.check()


async def test_a_lost_claim_is_not_forgotten_while_the_outage_lasts() -> None:
    stand = Stand()
    await stand.enqueue(3)
    stand.store.fail("claim_jobs", After(AWAY))
    stand.store.fail("release_claim", *[Before(AWAY)] * 5, After(AWAY))
    async with running(stand.supervised):
        jobs = await stand.taken(3)
    assert {job.attempt for job in jobs} == {1}
    assert len(stand.store.calls["release_claim"]) == 7


async def test_a_claim_that_is_over_is_told_with_the_next_one() -> None:
    stand = Stand()
    await stand.enqueue(3)
    await stand.claimer.claim_once(2)
    first, second = await stand.taken(2)
    await stand.end(first)
    await stand.claimer.claim_once(1)
    await stand.end(second)
    await stand.claimer.claim_once(1)
    await stand.claimer.claim_once(1)
    assert stand.store.over == [[], [], [first.lease_token], []]


async def test_on_a_quiet_queue_claims_that_are_over_are_told_ten_at_a_time() -> None:
    """With each one, every job would wait for that, and a claim in vain for the disk."""
    stand = Stand(hears=True)
    tokens = []
    for _ in range(24):
        await stand.enqueue(1)
        await stand.claimer.claim_once(2)
        [job] = await stand.taken(1)
        await stand.end(job)
        tokens.append(job.lease_token)
    assert [over for over in stand.store.over if over] == [tokens[:10], tokens[10:20]]
    await stand.enqueue(2)
    for _ in range(2):
        await stand.claimer.claim_once(1)  # As much as it asks for: not quiet any more.
    assert stand.store.over[-2:] == [[], tokens[20:]]


async def test_a_claim_that_is_over_is_told_again_if_it_may_not_have_been_heard() -> None:
    stand = Stand()
    await stand.enqueue(1)
    await stand.claimer.claim_once(1)
    [job] = await stand.taken(1)
    await stand.end(job)
    stand.store.fail("claim_jobs", Before(AWAY))
    with pytest.raises(StoreUnavailable):
        await stand.claimer.claim_once(1)
    await stand.claimer.claim_once(1)
    assert stand.store.over == [[], [job.lease_token], [job.lease_token]]


async def test_every_claim_bears_a_token_of_its_own() -> None:
    stand = Stand()
    await stand.enqueue(4)
    for _ in range(4):
        await stand.claimer.claim_once(1)
    tokens = [job.lease_token for job in await stand.taken(4)]
    assert len(set(tokens)) == 4
    assert all(stand.worker.id < token <= stand.worker.last_token for token in tokens)


@pytest.mark.parametrize("gate", ["closed", "*"])
async def test_a_paused_topic_is_not_claimed_until_it_is_resumed(gate: str) -> None:
    stand = Stand(["closed", "open"])
    await stand.enqueue(2, topic="closed")
    await stand.enqueue(2, topic="open")
    await stand.store.set_paused(gate, True)
    async with running(stand.claimer.run):
        await wait_all_tasks_blocked()
        claimed = [job.topic for job in await stand.taken(2)] if gate == "closed" else []
        assert claimed == ["open"] * len(claimed)
        assert stand.inflight.claimed == len(claimed)
        await stand.store.set_paused(gate, False)
        stand.claimer.look_behind()
        topics = [job.topic for job in await stand.taken(2 if claimed else 4)]
        assert topics.count("closed") == 2


async def test_jobs_of_other_kinds_are_left_alone() -> None:
    stand = Stand()
    await stand.enqueue(2, kind="somebody else's")
    [ours] = await stand.enqueue(1)
    assert await stand.claimer.claim_once(10) == 1
    [job] = await stand.taken(1)
    assert job.id == ours


async def test_a_job_whose_old_attempt_still_runs_here_is_given_back(clock: Clock) -> None:
    now = 1_800_000_000.0
    stand = Stand()
    stand.store._clock = lambda: now
    [id] = await stand.enqueue(1)
    await stand.claimer.claim_once(1)
    await stand.taken(1)
    now += 31.0
    await stand.store.reap_jobs(limit=1, after=FIRST)
    stand.claimer.look_behind()
    await stand.claimer.claim_once(1)
    assert (len(stand.inbox), len(stand.inflight)) == (0, 1)
    record = (await stand.store.get_jobs([id]))[id]
    assert (record.state, record.attempt, record.lease_token) == ("scheduled", 1, None)
    assert await stand.scheduled.wait(0.0), "nobody else knows when it will be due"


async def test_enough_in_the_queue_means_no_claim() -> None:
    stand = Stand(concurrency=3)
    await stand.enqueue(10)
    async with running(stand.claimer.run):
        await stand.taken(3)
        for _ in range(5):
            stand.nudge()
            await wait_all_tasks_blocked()
    assert stand.store.calls["claim_jobs"] == [3]
    assert stand.metrics.actors["claimer"].is_resting


async def test_a_claim_cancelled_at_any_step_loses_no_job() -> None:
    """Each job is in the registry and the inbox, or still ready, or its claim is known."""
    for steps in range(6):
        stand = Stand()
        await stand.enqueue(3)

        async def stop_after(steps: int, scope: anyio.CancelScope) -> None:
            for _ in range(steps):
                await anyio.lowlevel.checkpoint()
            scope.cancel()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stop_after, steps, tasks.cancel_scope)
            await stand.claimer.run()
        depths = {one.state: one.jobs for one in await stand.store.survey_topics(100)}
        assert depths.get("running", 0) == len(stand.inflight) == len(stand.inbox)
