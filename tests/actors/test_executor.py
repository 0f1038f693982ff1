"""The executor runs what it is given, as much at once as it may, and loses nothing on the way."""

import itertools
import time
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from anyio import wait_all_tasks_blocked

from chronos_runtime.config import SupervisorConfig
from chronos_runtime.ids import new_job_id
from chronos_runtime.job import Finish, Job, Outcome, Return
from chronos_runtime.supervisor import Supervisor
from tests.actors.bench import (
    DEADLINE_S,
    ExecutorBench,
    ends,
    in_order_of,
    make_handler,
    make_job,
    make_jobs,
    on_both_loops,
    restarts,
    running,
)
from tests.eventually import eventually

pytestmark = on_both_loops

EXECUTOR_CLOCK = "chronos_runtime.actors.executor.time"


class Crowd:
    """A handler that counts who runs at once and lets nobody go before `leave` is set."""

    def __init__(self) -> None:
        self.leave = anyio.Event()
        self.started: list[Job] = []
        self.present: Counter[str] = Counter()
        self.peaks: Counter[str] = Counter()
        self.handler = make_handler(self._wait)

    async def _wait(self, job: Job, payload: object) -> None:
        self.started.append(job)
        for name in (job.topic, "all"):
            self.present[name] += 1
            self.peaks[name] = max(self.peaks[name], self.present[name])
        try:
            await self.leave.wait()
            await anyio.lowlevel.checkpoint()
        finally:
            self.present.subtract([job.topic, "all"])


async def test_no_more_handlers_run_at_once_than_allowed() -> None:
    crowd = Crowd()
    bench = ExecutorBench(crowd.handler, concurrency=3)
    async with running(bench.executor.run):
        bench.give(*make_jobs(10))
        await wait_all_tasks_blocked()
        assert len(crowd.started) == 3
        crowd.leave.set()
        assert ends(await bench.outcomes(10)) == ["succeeded"] * 10
    assert crowd.peaks["all"] == 3


async def test_a_topic_runs_no_more_at_once_than_its_limit() -> None:
    crowd = Crowd()
    bench = ExecutorBench(crowd.handler, concurrency=5, topic_concurrency={"narrow": 2})
    async with running(bench.executor.run):
        bench.give(*make_jobs(6, topic="narrow"), *make_jobs(6, topic="wide"))
        await wait_all_tasks_blocked()
        assert crowd.present == {"narrow": 2, "wide": 3, "all": 5}
        crowd.leave.set()
        await bench.outcomes(12)
    assert crowd.peaks["narrow"] == 2


async def test_a_topic_at_its_limit_goes_on_when_one_of_its_jobs_ends() -> None:
    leave = {topic: anyio.Event() for topic in ("narrow", "wide")}
    started: list[Job] = []

    async def wait(job: Job, payload: object) -> None:
        started.append(job)
        await leave[job.topic].wait()

    bench = ExecutorBench(wait, concurrency=3, topic_concurrency={"narrow": 1})
    async with running(bench.executor.run):
        bench.give(*make_jobs(3, topic="narrow"), *make_jobs(1, topic="wide"))
        await wait_all_tasks_blocked()
        assert Counter(job.topic for job in started) == {"narrow": 1, "wide": 1}
        leave["narrow"].set()
        outcomes = await bench.outcomes(3)
        assert {one.job.topic for one in outcomes} == {"narrow"}


async def test_topics_take_turns() -> None:
    order: list[str] = []

    async def note(job: Job, payload: object) -> None:
        order.append(job.topic)

    bench = ExecutorBench(note, concurrency=1)
    async with running(bench.executor.run):
        bench.give(*make_jobs(4, topic="a"), *make_jobs(2, topic="b"), *make_jobs(1, topic="c"))
        await bench.outcomes(7)
    assert order == ["a", "b", "c", "a", "b", "a", "a"]


async def test_a_topic_whose_jobs_come_later_has_its_turn_at_once() -> None:
    order: list[str] = []

    async def note(job: Job, payload: object) -> None:
        order.append(job.topic)
        if len(order) == 2:
            bench.give(*make_jobs(2, topic="later"))
            await wait_all_tasks_blocked()

    bench = ExecutorBench(note, concurrency=1)
    async with running(bench.executor.run):
        bench.give(*make_jobs(5, topic="first"))
        await bench.outcomes(7)
    assert order == ["first"] * 3 + ["later", "first"] * 2


async def test_every_job_of_a_topic_runs_by_the_handler_of_its_kind() -> None:
    ran: list[tuple[str, str]] = []

    async def send(job: Job, payload: object) -> None:
        ran.append(("send", job.kind))

    async def bill(job: Job, payload: object) -> None:
        ran.append(("bill", job.kind))

    bench = ExecutorBench(make_handler(send, "send"), make_handler(bill, "bill"), concurrency=1)
    kinds = ["send", "send", "bill", "send", "bill", "bill", "send"]
    async with running(bench.executor.run):
        bench.give(*(make_job(kind=kind) for kind in kinds))
        await bench.outcomes(len(kinds))
    assert ran == [(kind, kind) for kind in kinds]
    for kind in ("send", "bill"):
        bench.metrics.fold()
        assert bench.metrics.started.value("default", kind) == kinds.count(kind)


async def test_jobs_of_a_topic_start_in_the_order_they_were_claimed() -> None:
    order: list[int] = []

    async def note(job: Job, payload: object) -> None:
        order.append(job.seq)

    bench = ExecutorBench(note, concurrency=1)
    async with running(bench.executor.run):
        for batch in (range(5), range(5, 30)):
            bench.give(*(make_job(seq=seq) for seq in batch))
        await bench.outcomes(30)
    assert order == list(range(30))


async def test_a_resting_slot_wakes_for_each_new_job() -> None:
    async def do_nothing(job: Job, payload: object) -> None: ...

    bench = ExecutorBench(do_nothing, concurrency=4)
    async with running(bench.executor.run):
        for _ in range(20):
            bench.give(make_job())
            assert ends(await bench.outcomes(1)) == ["succeeded"]


@pytest.mark.parametrize("concurrency", [1, 10])
async def test_handlers_that_never_wait_let_the_loop_breathe(concurrency: int) -> None:
    turns: list[int] = []  # Jobs run since the loop was last free.

    async def do_nothing(job: Job, payload: object) -> None:
        turns[-1] += 1
        until = time.perf_counter() + 0.0001
        while time.perf_counter() < until:
            pass

    bench = ExecutorBench(do_nothing, concurrency=concurrency)

    async def breathe() -> None:
        while True:
            turns.append(0)
            await anyio.lowlevel.checkpoint()

    async with running(breathe), running(bench.executor.run):
        bench.give(*make_jobs(1_000))
        await eventually(lambda: len(bench.outbox) == 1_000)
    # Half a millisecond a turn of each of two slots at most, and the job that goes beyond it.
    assert max(turns) <= 2 * 7


async def test_slots_wake_only_for_handlers_that_wait() -> None:
    tasks: set[int] = set()

    async def do_nothing(job: Job, payload: object) -> None:
        tasks.add(anyio.get_current_task().id)

    bench = ExecutorBench(do_nothing, concurrency=50)
    async with running(bench.executor.run):
        await wait_all_tasks_blocked()
        bench.give(*make_jobs(5_000))
        await eventually(lambda: len(bench.outbox) == 5_000)
    assert len(tasks) <= 3


async def test_as_many_handlers_wait_at_once_as_there_are_slots() -> None:
    gate = anyio.Event()

    async def wait(job: Job, payload: object) -> None:
        await gate.wait()

    bench = ExecutorBench(wait, concurrency=50)
    async with running(bench.executor.run):
        bench.give(*make_jobs(200))
        await eventually(lambda: bench.inflight.running == 50)
        gate.set()
        await eventually(lambda: len(bench.outbox) == 200)


async def test_slots_that_went_to_rest_while_jobs_were_queued_wake_for_those_that_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("chronos_runtime.actors.executor._TURN_S", 0.0)
    first, last = Crowd(), Crowd()

    async def handle(job: Job, payload: object) -> None:
        if job.seq != 2:
            await (first if job.seq == 1 else last)._wait(job, payload)

    bench = ExecutorBench(handle, concurrency=4)
    async with running(bench.executor.run):
        bench.give(*(make_job(seq=seq) for seq in [1] * 4 + [2] * 50 + [3] * 4))
        await eventually(lambda: first.peaks["all"] == 4)
        await wait_all_tasks_blocked()
        first.leave.set()
        await eventually(lambda: last.peaks["all"] == 4)
        last.leave.set()
        await bench.outcomes(58)


async def test_the_claimer_hears_that_there_is_room_when_the_queue_runs_low() -> None:
    crowd = Crowd()
    bench = ExecutorBench(crowd.handler, concurrency=1)
    bench.inflight.low_water = 1
    async with running(bench.executor.run):
        bench.give(*make_jobs(4))
        await wait_all_tasks_blocked()
        assert not await bench.room.wait(0)  # Three are queued: that is more than one.
        crowd.leave.set()
        await bench.outcomes(4)
        assert await bench.room.wait(0)


async def test_the_claimer_hears_that_there_is_room_while_every_slot_is_taken() -> None:
    crowd = Crowd()
    bench = ExecutorBench(crowd.handler, concurrency=1)
    bench.inflight.low_water = 1
    async with running(bench.executor.run):
        bench.give(*make_jobs(2))
        await wait_all_tasks_blocked()
        assert await bench.room.wait(0)  # One is queued, and no slot rests that could tell.
        crowd.leave.set()
        await bench.outcomes(2)


async def test_starts_waits_and_runs_are_counted_by_topic_and_kind() -> None:
    async def do_nothing(job: Job, payload: object) -> None: ...

    bench = ExecutorBench(do_nothing)
    async with running(bench.executor.run):
        bench.give(*make_jobs(3, topic="mail", wait_s=1_000_000.0))
        await bench.outcomes(3)
    bench.metrics.fold()
    assert bench.metrics.started.value("mail", "work") == 3
    samples = {
        (sample.name, sample.labels.get("le")): sample.value
        for family in bench.metrics.registry.collect()
        for sample in family.samples
        if sample.labels.get("topic") == "mail"
    }
    assert samples["chronos_executor_wait_seconds_count", None] == 3
    assert samples["chronos_executor_wait_seconds_bucket", "3600.0"] == 0  # They waited for days.
    assert samples["chronos_executor_run_seconds_bucket", "1.0"] == 3


@pytest.mark.parametrize("elsewhere_s", [0.0, 60.0])
async def test_a_run_is_timed_by_itself_whatever_came_before_it_on_its_slot(
    monkeypatch: pytest.MonkeyPatch, elsewhere_s: float
) -> None:
    clock = SimpleNamespace(now=1_000.0)
    monkeypatch.setattr(EXECUTOR_CLOCK, SimpleNamespace(monotonic=lambda: clock.now))

    async def work(job: Job, payload: tuple[float, str]) -> None:
        run_s, end = payload
        clock.now += run_s
        if end == "fails":
            raise ValueError

    async def elsewhere() -> None:
        while True:  # Whenever the slot lets others have the loop, they take so long.
            clock.now += elsewhere_s
            await anyio.lowlevel.checkpoint()

    bench = ExecutorBench(work)
    payloads = ['[1.0, "ends"]', '[0.0001, "ends"]', '[2.0, "fails"]', '[3.0, "ends"]']
    async with running(elsewhere), running(bench.executor.run):
        bench.give(*(make_job(payload=payload) for payload in payloads))
        came = await bench.outcomes(4)
        bench.give(make_job(payload='[4.0, "ends"]'))  # After a rest.
        came += await bench.outcomes(1)
    ended = [one.run_s for one in came if isinstance(one, Finish)]
    assert ended == pytest.approx([1.0, 0.0001, 3.0, 4.0])


async def test_when_the_inbox_closes_what_runs_ends_and_what_waits_is_given_back() -> None:
    crowd = Crowd()
    bench = ExecutorBench(crowd.handler, concurrency=2)
    jobs = make_jobs(5)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(bench.executor.run)
        bench.give(*jobs)
        await eventually(lambda: bench.inflight.running == 2)
        bench.inbox.close()
        released = await bench.outcomes(3)
        assert ends(released) == ["release"] * 3
        assert [one.job for one in released] == jobs[2:]
        assert all(isinstance(one, Return) and one.gives_back for one in released)
        crowd.leave.set()
        assert ends(await bench.outcomes(2)) == ["succeeded"] * 2
    assert (bench.inflight.settled, len(bench.inflight)) == (5, 0)


async def test_what_comes_after_the_executor_ended_is_given_back_on_demand() -> None:
    crowd = Crowd()
    bench = ExecutorBench(crowd.handler)
    async with running(bench.executor.run) as scope:
        await wait_all_tasks_blocked()
        scope.cancel()
    bench.give(*make_jobs(3))  # The claim was on its way.
    bench.executor.release_inbox()
    assert ends(await bench.outcomes(3)) == ["release"] * 3
    bench.executor.release_inbox()
    assert (len(bench.outbox), len(bench.inflight)) == (0, 0)


async def test_an_idle_executor_returns_when_its_inbox_closes() -> None:
    async def do_nothing(job: Job, payload: object) -> None: ...

    bench = ExecutorBench(do_nothing, concurrency=3)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(bench.executor.run)
        await wait_all_tasks_blocked()
        closed_at = anyio.current_time()
        bench.inbox.close()
    assert anyio.current_time() - closed_at < 0.5


async def test_a_drain_deadline_interrupts_every_running_job() -> None:
    crowd = Crowd()
    bench = ExecutorBench(crowd.handler, concurrency=3)
    async with running(bench.executor.run) as scope:
        bench.give(*make_jobs(5))
        await eventually(lambda: bench.inflight.running == 3)
        scope.cancel()
    outcomes = await bench.outcomes(5)
    assert Counter(ends(outcomes)) == {"interrupt": 3, "release": 2}
    interrupted = [one for one in outcomes if ends([one]) == ["interrupt"]]
    assert all("shut down" in (one.error or "") for one in interrupted)
    assert len(bench.inflight) == 0


class BrokenGauge:
    """Raises when it is set at the wrong moment: a bug inside the executor's own tasks."""

    def __init__(self, breaks: Callable[[], bool]) -> None:
        self._breaks = breaks

    def set(self, value: float) -> None:
        if self._breaks():
            raise RuntimeError("the gauge broke")


async def test_the_timeout_of_one_job_among_others_is_kept() -> None:
    async def stay_if_timed(job: Job, payload: object) -> None:
        if job.timeout_s is not None:
            await anyio.sleep_forever()

    bench = ExecutorBench(stay_if_timed, concurrency=1)
    async with running(bench.executor.run):
        jobs = [make_job(timeout_s=0.001 if place == 2 else None) for place in range(5)]
        bench.give(*jobs)
        ended = ends(in_order_of(jobs, await bench.outcomes(5)))
        assert ended == ["succeeded"] * 2 + ["retry"] + ["succeeded"] * 2


async def test_the_timeout_of_a_job_that_ended_is_none_of_the_next_one() -> None:
    leave = anyio.Event()
    sweeps: list[float] = []

    async def stay_unless_timed_closely(job: Job, payload: object) -> None:
        if job.timeout_s != 0.001:
            await leave.wait()

    def note_sweep() -> bool:
        sweeps.append(anyio.current_time())
        return False

    bench = ExecutorBench(stay_unless_timed_closely, concurrency=2)
    bench.metrics.inbox_fill = BrokenGauge(note_sweep)  # type: ignore[assignment]
    async with running(bench.executor.run):
        bench.give(make_job(timeout_s=0.001))
        await bench.outcomes(1)
        bench.give(make_job())  # On the same slot: the one that rested last.
        await wait_all_tasks_blocked()
        sweeps.clear()
        bench.give(make_job(timeout_s=100.0))  # On the other, so that deadlines are looked at.
        await eventually(lambda: len(sweeps) >= 3)
        assert len(bench.outbox) == 0
        leave.set()
        assert ends(await bench.outcomes(2)) == ["succeeded"] * 2


async def test_a_crash_inside_the_executor_gives_its_jobs_back() -> None:
    crowd = Crowd()
    bench = ExecutorBench(crowd.handler, concurrency=2)
    gauge = BrokenGauge(lambda: bench.inflight.running == 2)
    bench.metrics.inbox_fill = gauge  # type: ignore[assignment]
    bench.give(*make_jobs(5, timeout_s=100.0))
    with anyio.fail_after(DEADLINE_S), pytest.raises(ExceptionGroup):
        await bench.executor.run()
    outcomes = await bench.outcomes(5)
    assert Counter(ends(outcomes)) == {"interrupt": 2, "release": 3}
    assert (bench.inflight.claimed, bench.inflight.settled) == (5, 5)


async def test_an_executor_that_was_restarted_serves_on() -> None:
    async def do_nothing(job: Job, payload: object) -> None: ...

    bench = ExecutorBench(do_nothing, concurrency=2)
    sets = itertools.count(1)
    gauge = BrokenGauge(lambda: next(sets) == 2)
    bench.metrics.inbox_fill = gauge  # type: ignore[assignment]
    supervisor = Supervisor(SupervisorConfig(backoff_s=0.001), bench.metrics)

    async def supervised() -> None:
        await supervisor.run(bench.executor)

    came: list[Outcome] = []
    async with running(supervised):
        while restarts(bench.metrics, "executor") < 1:
            bench.give(make_job(timeout_s=100.0))
            came += await bench.outcomes(1)
        bench.give(*make_jobs(3))
        came += await bench.outcomes(3)
    assert bench.inflight.claimed == len(came)


async def test_what_is_in_the_inbox_during_a_crash_is_served_after_it() -> None:
    async def do_nothing(job: Job, payload: object) -> None: ...

    bench = ExecutorBench(do_nothing)
    async with running(bench.executor.run) as scope:
        await wait_all_tasks_blocked()
        scope.cancel()  # Before the executor comes to look.
        bench.give(*make_jobs(3))
    async with running(bench.executor.run):
        assert ends(await bench.outcomes(3)) == ["succeeded"] * 3


@pytest.mark.parametrize(
    ("result", "changes", "is_plain"),
    [(None, {}, True), (7, {}, False), (None, {"schedule_id": new_job_id()}, False)],
    ids=["plain", "result", "fire"],
)
async def test_only_what_is_plain_is_handed_on_in_columns(
    result: object, changes: dict[str, Any], is_plain: bool
) -> None:
    async def end(job: Job, payload: object) -> object:
        return result

    bench = ExecutorBench(end)
    jobs = make_jobs(3, **changes)  # The first and the last of a queue take another way.
    async with running(bench.executor.run):
        bench.give(*jobs)
        await eventually(lambda: len(bench.outbox) == 3)
    assert bench.outbox.jobs == (jobs if is_plain else [])
    assert len(bench.outbox.run_s) == len(bench.outbox.jobs)
