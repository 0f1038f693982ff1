"""The reporter writes every outcome once, whatever the database does meanwhile."""

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import anyio
import pytest
from anyio import wait_all_tasks_blocked

from chronos_runtime.actors.reporter import Reporter
from chronos_runtime.config import ReporterConfig, SupervisorConfig
from chronos_runtime.errors import StoreError, StoreUnavailable
from chronos_runtime.failure import reason_record
from chronos_runtime.ids import Worker
from chronos_runtime.inflight import Inflight
from chronos_runtime.job import Finish, Job, Outcome, Return
from chronos_runtime.metrics import Metrics
from chronos_runtime.nudge import Nudge
from chronos_runtime.outbox import Outbox
from chronos_runtime.schedule import Schedule
from chronos_runtime.store import JobRecord, Wanted
from chronos_runtime.supervisor import Supervisor
from tests.actors.bench import on_both_loops, restarts, running
from tests.actors.flaky import After, Before, FlakyStore, Hold, Miss
from tests.eventually import eventually
from tests.store.world import FIRST, NO_FRONTIER, new_job

pytestmark = on_both_loops

AWAY = StoreUnavailable("away")
COUNTERS = (
    "succeeded",
    "failed",
    "retried",
    "dead",
    "cancelled",
    "snoozed",
    "released",
    "stale",
    "unwritable",
)
REFUSED = StoreError("refused")


class Desk:
    """A reporter, and jobs claimed from the store it writes to."""

    def __init__(self, **config: Any) -> None:
        self.now = 1_800_000_000.0
        self.store = FlakyStore(clock=lambda: self.now)
        self.worker = Worker()
        self.metrics = Metrics()
        self.inflight = Inflight(1_000)
        self.outbox = Outbox(1_000)
        self.room, self.scheduled = Nudge(), Nudge()
        self.returns = 0
        self.reporter = Reporter(
            ReporterConfig(**config),
            self.store,
            self.inflight,
            self.metrics,
            worker=self.worker.name,
            outbox=self.outbox,
            room=self.room,
            returned=self._note_return,
            scheduled=self.scheduled,
        )

    def _note_return(self) -> None:
        self.returns += 1

    async def claim(self, count: int = 1, **changes: Any) -> list[Job]:
        """Jobs this process runs."""
        await self.store.enqueue_jobs([new_job(**changes) for _ in range(count)])
        jobs = await self.claim_as(self.worker)
        self.inflight.claim(jobs)
        for _ in jobs:
            self.inflight.start()
        return jobs

    async def claim_as(self, worker: Worker) -> list[Job]:
        return await self.store.claim_jobs(
            worker.next_token(),
            [Wanted("default", 1_000, NO_FRONTIER)],
            kinds=["greet"],
            room=1_000,
            lease_s=30.0,
            claimed_at=0.0,
        )

    def put(self, *outcomes: Outcome) -> None:
        """Hand outcomes over as the executor does."""
        for outcome in outcomes:
            self.inflight.stop(outcome.job)
            self.outbox.put(outcome)

    async def supervised(self) -> None:
        config = SupervisorConfig(backoff_s=0.0001, backoff_max_s=0.0001, restarts_max=1)
        await Supervisor(config, self.metrics).run(self.reporter)

    async def settled(self, count: int) -> None:
        """Wait until so many jobs have left the registry."""
        await eventually(lambda: self.inflight.settled == count)
        assert self.inflight.settled == self.inflight.claimed - len(self.inflight)

    async def write_out(self, *outcomes: Outcome) -> None:
        """Write everything and end, as a drain does."""
        self.put(*outcomes)
        self.outbox.close()
        await self.supervised()
        assert len(self.inflight) == 0

    async def get(self, job: Job) -> JobRecord:
        return (await self.store.get_jobs([job.id]))[job.id]


def retry(job: Job, delay_s: float | None = 10.0) -> Return:
    error = reason_record("ValueError", "no", attempt=job.attempt, worker="")
    return Return(job, "retry", 0.1, delay_s, error)


def succeed(*jobs: Job) -> list[Outcome]:
    return [Finish(job, "succeeded", 0.1) for job in jobs]


async def test_the_first_outcome_is_written_at_once_and_the_next_ones_together() -> None:
    desk = Desk()
    first, *others = await desk.claim(10)
    slow = anyio.Event()
    desk.store.fail("finish_jobs", Hold(slow))
    async with running(desk.reporter.run):
        desk.put(*succeed(first))
        await eventually(lambda: desk.store.calls["finish_jobs"] == [1])
        for job in others:
            desk.put(*succeed(job))
            await anyio.lowlevel.checkpoint()
        slow.set()
        await desk.settled(10)
    assert desk.store.calls["finish_jobs"] == [1, 9]
    assert [(await desk.get(job)).state for job in others] == ["succeeded"] * 9


async def test_no_batch_is_larger_than_allowed() -> None:
    desk = Desk(batch_max=4, return_batch_max=3)
    jobs = await desk.claim(17)
    await desk.write_out(*succeed(*jobs[:10]), *(retry(job) for job in jobs[10:]))
    assert desk.store.calls["finish_jobs"] == [4, 4, 2]
    assert desk.store.calls["return_jobs"] == [3, 3, 1]


@pytest.mark.parametrize(
    ("outcome", "state", "counted"),
    [
        (lambda job: Finish(job, "succeeded", 0.1, result="[7]"), "succeeded", {"succeeded"}),
        (lambda job: Finish(job, "dead", 0.1), "dead", {"failed", "dead"}),
        (lambda job: Finish(job, "cancelled", 0.1), "cancelled", {"cancelled"}),
        (retry, "scheduled", {"failed", "retried"}),
        (lambda job: Return(job, "snooze", 0.1, 10.0), "scheduled", {"snoozed"}),
        (lambda job: Return(job, "release"), "ready", {"released"}),
        (lambda job: Return(job, "interrupt", 0.1), "ready", {"failed"}),
    ],
    ids=["succeeded", "dead", "cancelled", "retry", "snooze", "release", "interrupt"],
)
async def test_every_outcome_is_written_and_counted(
    outcome: Any, state: str, counted: set[str]
) -> None:
    desk = Desk()
    [job] = await desk.claim()
    await desk.write_out(outcome(job))
    record = await desk.get(job)
    assert record.state == state
    assert record.attempt == (0 if counted & {"snoozed", "released"} else 1)
    assert counts(desk) == dict.fromkeys(counted, 1)


def counts(desk: Desk) -> dict[str, int]:
    """What was counted of the only kind there is."""
    found = {name: getattr(desk.metrics, name).value("default", "greet") for name in COUNTERS}
    return {name: count for name, count in found.items() if count}


async def test_an_outage_drops_nothing() -> None:
    desk = Desk()
    jobs = await desk.claim(6)
    desk.store.fail("finish_jobs", *[Before(AWAY)] * 20)
    desk.store.fail("return_jobs", *[Before(AWAY)] * 20)
    await desk.write_out(*succeed(*jobs[:3]), *(retry(job) for job in jobs[3:]))
    assert counts(desk) == {"succeeded": 3, "failed": 3, "retried": 3}
    assert restarts(desk.metrics, "reporter") == 40


async def test_outcomes_that_come_during_an_outage_are_written_after_it() -> None:
    desk = Desk()
    jobs = await desk.claim(3)
    desk.store.fail("finish_jobs", *[Before(AWAY)] * 5)
    async with running(desk.supervised):
        for job in jobs:
            desk.put(*succeed(job))
            await anyio.lowlevel.checkpoint()
        await desk.settled(3)
    assert counts(desk) == {"succeeded": 3}


async def test_what_was_taken_off_the_outbox_survives_a_restart() -> None:
    desk = Desk()
    jobs = await desk.claim(2)
    desk.store.fail("finish_jobs", Hold(anyio.Event()))
    async with running(desk.reporter.run) as scope:
        desk.put(*succeed(*jobs))
        await eventually(lambda: desk.store.calls["finish_jobs"])
        scope.cancel()
    assert (len(desk.outbox), len(desk.inflight)) == (0, 2)
    await desk.write_out()
    assert counts(desk) == {"succeeded": 2}


@pytest.mark.parametrize(
    ("outcome", "end"),
    [
        (lambda job: Finish(job, "succeeded", 0.1), "succeeded"),
        (lambda job: Finish(job, "dead", 0.1), "dead"),
        (lambda job: Return(job, "snooze", 0.1, 10.0), "snoozed"),
        (lambda job: Return(job, "release"), "released"),
    ],
    ids=["succeeded", "dead", "snooze", "release"],
)
async def test_a_write_whose_reply_was_lost_counts_once(outcome: Any, end: str) -> None:
    desk = Desk()
    [job] = await desk.claim()
    for statement in ("finish_jobs", "return_jobs"):
        desk.store.fail(statement, After(AWAY))
    await desk.write_out(outcome(job))
    assert counts(desk)[end] == 1
    assert "stale" not in counts(desk)


async def test_a_retry_whose_reply_was_lost_counts_once() -> None:
    desk = Desk()
    [job] = await desk.claim()
    error = reason_record("ValueError", "no", attempt=job.attempt, worker=desk.worker.name)
    desk.store.fail("return_jobs", After(AWAY))
    await desk.write_out(Return(job, "retry", 0.1, 10.0, error))
    assert counts(desk) == {"failed": 1, "retried": 1}
    assert len((await desk.get(job)).errors) == 1


async def test_a_stale_outcome_is_counted_and_logged_with_both_tokens(
    caplog: pytest.LogCaptureFixture,
) -> None:
    desk = Desk()
    [job] = await desk.claim()
    desk.now += 31.0
    await desk.store.reap_jobs(limit=10, after=FIRST)
    [theirs] = await desk.claim_as(Worker())
    await desk.write_out(*succeed(job))
    assert counts(desk) == {"stale": 1}
    assert (await desk.get(job)).state == "running"
    [line] = [record for record in caplog.records if record.levelno == logging.WARNING]
    fields = vars(line)
    assert fields["job"] == str(job.id)
    assert fields["token"] == str(job.lease_token)
    assert fields["current_token"] == str(theirs.lease_token)


async def test_a_success_counts_only_when_the_history_has_it() -> None:
    """A claim that was given back, or lost in a failover, leaves the same traces as a snooze."""
    desk = Desk()
    [job] = await desk.claim()
    await desk.store.return_jobs([Return(job, "release")])
    await desk.write_out(*succeed(job))
    assert counts(desk) == {"stale": 1}
    assert (await desk.get(job)).state == "ready"


async def test_a_stale_outcome_does_not_hold_up_the_others() -> None:
    desk = Desk()
    [lost] = await desk.claim()
    desk.now += 31.0
    await desk.store.reap_jobs(limit=10, after=FIRST)
    await desk.claim_as(Worker())
    jobs = await desk.claim(3)
    await desk.write_out(*succeed(jobs[0], lost, *jobs[1:]))
    assert counts(desk) == {"stale": 1, "succeeded": 3}


@pytest.mark.parametrize("statement", ["finish_jobs", "return_jobs"])
async def test_a_write_that_matched_nothing_though_the_claim_stands_is_sent_again(
    statement: str,
) -> None:
    desk = Desk()
    [job] = await desk.claim()
    desk.store.fail(statement, Miss(), Miss())
    if statement == "finish_jobs":
        await desk.write_out(*succeed(job))
        assert counts(desk) == {"succeeded": 1}
    else:
        await desk.write_out(retry(job))
        assert counts(desk) == {"failed": 1, "retried": 1}
    assert desk.store.calls[statement] == [1, 1, 1]


async def test_an_outcome_the_database_refuses_does_not_stop_the_others() -> None:
    desk = Desk()
    jobs = await desk.claim(4)
    bad = Finish(jobs[1], "succeeded", 0.1, result="{broken")
    await desk.write_out(*succeed(jobs[0]), bad, *succeed(*jobs[2:]))
    assert counts(desk) == {"succeeded": 4}
    record = await desk.get(jobs[1])
    assert (record.state, record.result) == ("succeeded", None)
    assert record.errors[-1]["type"] == "Unwritable"


async def test_a_return_the_database_refuses_does_not_stop_the_others() -> None:
    desk = Desk()
    jobs = await desk.claim(3)
    bad = Return(jobs[1], "retry", 0.1, 10.0, "{broken")
    await desk.write_out(retry(jobs[0]), bad, retry(jobs[2]))
    assert counts(desk) == {"failed": 3, "retried": 3}
    assert (await desk.get(jobs[1])).errors[-1]["type"] == "Unwritable"


async def test_an_outcome_refused_even_without_its_result_is_left_to_its_lease(
    caplog: pytest.LogCaptureFixture,
) -> None:
    desk = Desk()
    [job] = await desk.claim()
    desk.store.fail("finish_jobs", *[Before(REFUSED)] * 3)  # As others are, by itself, and bare.
    await desk.write_out(*succeed(job))
    assert counts(desk) == {"unwritable": 1}
    assert "refused" in caplog.text
    assert (await desk.get(job)).state == "running"
    assert desk.inflight.claims_over == [], "it is by its claim that the lease is found"
    desk.now += 31.0  # Nobody beats for it any more.
    [reaped] = await desk.store.reap_jobs(limit=10, after=FIRST)
    assert (reaped.id, reaped.state) == (job.id, "ready")


async def test_an_outage_while_one_outcome_is_refused_drops_nothing() -> None:
    desk = Desk()
    jobs = await desk.claim(3)
    desk.store.fail(
        "finish_jobs", Before(REFUSED), Before(AWAY), Before(REFUSED), Before(REFUSED), Before(AWAY)
    )
    await desk.write_out(*succeed(*jobs))
    assert counts(desk) == {"succeeded": 3}


async def test_an_outage_during_the_second_look_drops_nothing() -> None:
    desk = Desk()
    [job] = await desk.claim()
    desk.store.fail("finish_jobs", After(AWAY))
    desk.store.fail("verify_claims", Before(AWAY), Before(AWAY))
    await desk.write_out(*succeed(job))
    assert counts(desk) == {"succeeded": 1}


async def test_it_returns_when_the_outbox_is_closed_and_everything_is_written() -> None:
    desk = Desk()
    jobs = await desk.claim(3)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(desk.reporter.run)
        await wait_all_tasks_blocked()
        desk.put(*succeed(*jobs))
        desk.outbox.close()
    assert counts(desk) == {"succeeded": 3}


async def test_whoever_waits_for_room_hears_of_every_write() -> None:
    desk = Desk()
    [job] = await desk.claim()
    assert not await desk.room.wait(0.0)
    await desk.write_out(*succeed(job))
    assert await desk.room.wait(0.0)
    assert not await desk.scheduled.wait(0.0)
    assert desk.returns == 0


async def test_the_scheduler_hears_of_a_job_that_will_be_due() -> None:
    desk = Desk()
    [job] = await desk.claim()
    await desk.write_out(retry(job, 10.0))
    assert await desk.scheduled.wait(0.0)
    assert desk.returns == 0


@pytest.mark.parametrize("delay_s", [None, 0.0])
async def test_the_claimer_hears_of_a_job_that_is_ready_again(delay_s: float | None) -> None:
    desk = Desk()
    [job] = await desk.claim()
    await desk.write_out(retry(job, delay_s))
    assert desk.returns == 1
    assert not await desk.scheduled.wait(0.0)


async def test_a_job_somebody_cancelled_meanwhile_does_not_come_back() -> None:
    desk = Desk()
    [job] = await desk.claim()
    await desk.store.cancel_jobs([job.id])
    await desk.write_out(retry(job))
    assert (await desk.get(job)).state == "cancelled"
    assert desk.returns == 0


async def test_the_end_of_a_fire_wakes_the_scheduler_and_that_of_a_plain_job_does_not() -> None:
    desk = Desk()
    now = datetime.fromtimestamp(desk.now, UTC)
    schedule = Schedule(id=uuid4(), name="minutely", kind="greet", cron="* * * * *")
    await desk.store.schedules.add_schedules([schedule])
    [plain] = await desk.claim()
    await desk.store.schedules.run_schedule(
        schedule.id, occurrence=now, job_id=uuid4(), payload="null"
    )
    fires = await desk.claim_as(desk.worker)
    desk.inflight.claim(fires)
    desk.inflight.start()
    async with running(desk.supervised):
        desk.put(Finish(plain, "succeeded", 0.1))
        await desk.settled(1)
        assert not await desk.scheduled.wait(0)
        desk.put(Finish(fires[0], "succeeded", 0.1))
        await desk.settled(2)
        assert await desk.scheduled.wait(0)


@pytest.mark.parametrize(
    ("end", "returns", "is_scheduled", "counted"),
    [
        (lambda job: Finish(job, "succeeded", 0.1, is_written=True), 0, False, "succeeded"),
        (lambda job: Return(job, "release", 0.1, 0.0, is_written=True), 1, False, "released"),
        (lambda job: Return(job, "snooze", 0.1, 9.0, is_written=True), 0, True, "snoozed"),
    ],
    ids=["finish", "ready again", "due later"],
)
async def test_what_a_transaction_has_written_is_counted_and_told_but_not_written_again(
    end: Callable[[Job], Outcome], returns: int, is_scheduled: bool, counted: str
) -> None:
    desk = Desk()
    [job] = await desk.claim()
    await desk.write_out(end(job))
    assert counts(desk) == {counted: 1}
    assert (desk.returns, await desk.scheduled.wait(0.0)) == (returns, is_scheduled)
    assert await desk.room.wait(0.0)
    assert not desk.store.calls["finish_jobs"]
    assert not desk.store.calls["return_jobs"]
