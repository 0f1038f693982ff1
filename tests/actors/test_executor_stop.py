"""A handler can be stopped at any moment; a stop that comes too late hits nobody."""

import itertools
from collections.abc import Awaitable, Callable

import anyio
import anyio.lowlevel
import msgspec
import pytest
from anyio import wait_all_tasks_blocked

from chronos_runtime.job import Finish, Job, Outcome, Return
from chronos_runtime.outcomes import StopReason
from tests.actors.bench import (
    BACKOFF_S,
    ExecutorBench,
    ends,
    make_handler,
    make_job,
    make_jobs,
    on_both_loops,
    running,
)
from tests.eventually import eventually

pytestmark = on_both_loops

Body = Callable[[Job, object], Awaitable[object]]

REASONS: dict[StopReason, str] = {"cancel": "cancelled", "timeout": "retry", "lost": "interrupt"}
"""Why a handler is stopped, and how its job then ends."""

every_reason = pytest.mark.parametrize("reason", REASONS)


def error_type(outcome: Outcome) -> object:
    return None if outcome.error is None else msgspec.json.decode(outcome.error)["type"]


async def sleep_for_ever(job: Job, payload: object) -> None:
    await anyio.sleep_forever()


async def stop_running(bench: ExecutorBench, reason: StopReason) -> Outcome:
    """The outcome of a job whose handler is stopped once it waits."""
    job = make_job()
    async with running(bench.executor.run):
        bench.give(job)
        await wait_all_tasks_blocked()
        bench.executor.stop(job.id, reason)
        [outcome] = await bench.outcomes(1)
    return outcome


async def test_a_cancelled_job_ends_as_cancelled() -> None:
    outcome = await stop_running(ExecutorBench(sleep_for_ever), "cancel")
    assert isinstance(outcome, Finish)
    assert (outcome.state, error_type(outcome)) == ("cancelled", "Cancelled")


async def test_a_job_that_timed_out_is_retried_after_its_backoff() -> None:
    outcome = await stop_running(ExecutorBench(sleep_for_ever), "timeout")
    assert isinstance(outcome, Return)
    assert (outcome.why, outcome.delay_s) == ("retry", BACKOFF_S)
    assert error_type(outcome) == "TimeoutError"


async def test_a_job_whose_lease_was_lost_is_left_to_its_new_owner() -> None:
    outcome = await stop_running(ExecutorBench(sleep_for_ever), "lost")
    assert isinstance(outcome, Return)  # It will match no row; the reporter calls it stale.
    assert (outcome.why, outcome.error, outcome.gives_back) == ("interrupt", None, False)


@every_reason
async def test_the_first_reason_to_stop_counts(reason: StopReason) -> None:
    bench = ExecutorBench(sleep_for_ever)
    job = make_job()
    async with running(bench.executor.run):
        bench.give(job)
        await wait_all_tasks_blocked()
        bench.executor.stop(job.id, reason)
        for other in REASONS:
            bench.executor.stop(job.id, other)
        assert ends(await bench.outcomes(1)) == [REASONS[reason]]


@every_reason
async def test_a_handler_that_swallows_its_cancellation_has_its_result_kept(
    reason: StopReason,
) -> None:
    async def insist(job: Job, payload: object) -> str:
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            return "done all the same"
        raise AssertionError("unreachable")

    outcome = await stop_running(ExecutorBench(insist), reason)
    assert isinstance(outcome, Finish)
    assert (outcome.state, outcome.result) == ("succeeded", '"done all the same"')


async def break_on_the_way_out(job: Job, payload: object) -> None:
    try:
        await anyio.sleep_forever()
    finally:
        raise RuntimeError("the cleanup failed")


async def break_in_a_child_on_the_way_out(job: Job, payload: object) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(sleep_for_ever, job, payload)
        tasks.start_soon(break_on_the_way_out, job, payload)


class Odd(BaseException):
    """Neither an error nor an exit."""


async def raise_something_odd_on_the_way_out(job: Job, payload: object) -> None:
    try:
        await anyio.sleep_forever()
    finally:
        raise Odd


breaking = pytest.mark.parametrize(
    "body",
    [
        break_on_the_way_out,
        break_in_a_child_on_the_way_out,
        raise_something_odd_on_the_way_out,
    ],
)


@every_reason
@breaking
async def test_a_handler_that_breaks_while_it_is_stopped_was_stopped(
    reason: StopReason, body: Body
) -> None:
    outcome = await stop_running(ExecutorBench(body), reason)
    assert ends([outcome]) == [REASONS[reason]]


@breaking
async def test_a_handler_that_breaks_while_the_process_goes_down_was_interrupted(
    body: Body,
) -> None:
    bench = ExecutorBench(body, concurrency=2)
    async with running(bench.executor.run) as scope:
        # The last attempt: a deploy must not make a job dead.
        bench.give(*make_jobs(2, attempt=5))
        await eventually(lambda: bench.inflight.running == 2)
        await wait_all_tasks_blocked()
        scope.cancel()
    assert ends(await bench.outcomes(2)) == ["interrupt"] * 2


async def test_a_handler_may_take_its_time_to_clean_up() -> None:
    cleaned = anyio.Event()

    async def tidy(job: Job, payload: object) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await cleaned.wait()

    bench = ExecutorBench(tidy)
    job = make_job()
    async with running(bench.executor.run):
        bench.give(job)
        await wait_all_tasks_blocked()
        bench.executor.stop(job.id, "cancel")
        await wait_all_tasks_blocked()
        assert len(bench.outbox) == 0
        cleaned.set()
        assert ends(await bench.outcomes(1)) == ["cancelled"]


class Waiting:
    """Handlers that note who started, and stay until they may leave."""

    def __init__(self) -> None:
        self.started: list[Job] = []
        self.leave = anyio.Event()

    async def handle(self, job: Job, payload: object) -> None:
        self.started.append(job)
        await self.leave.wait()


@every_reason
async def test_a_job_that_is_stopped_while_it_waits_never_starts(reason: StopReason) -> None:
    waiting = Waiting()
    bench = ExecutorBench(waiting.handle)
    jobs = make_jobs(3)
    async with running(bench.executor.run):
        bench.give(*jobs)
        await wait_all_tasks_blocked()
        bench.executor.stop(jobs[1].id, reason)
        assert ends(await bench.outcomes(1)) == [REASONS[reason]]  # At once, not at its turn.
        waiting.leave.set()
        assert ends(await bench.outcomes(2)) == ["succeeded", "succeeded"]
    assert waiting.started == [jobs[0], jobs[2]]


async def test_stopping_a_job_nobody_has_does_nothing() -> None:
    async def do_nothing(job: Job, payload: object) -> None: ...

    bench = ExecutorBench(do_nothing)
    bench.executor.stop(make_job().id, "cancel")  # Not even started yet.
    job = make_job()
    async with running(bench.executor.run):
        bench.give(job)
        assert ends(await bench.outcomes(1)) == ["succeeded"]
        bench.executor.stop(job.id, "cancel")
        bench.give(job)  # The same job again, as after a retry.
        assert ends(await bench.outcomes(1)) == ["succeeded"]


async def test_a_queued_job_that_was_stopped_leaves_nothing_behind() -> None:
    waiting = Waiting()
    bench = ExecutorBench(waiting.handle)
    first, stopped, last = make_jobs(3)
    async with running(bench.executor.run):
        bench.give(first, stopped)
        await wait_all_tasks_blocked()
        bench.executor.stop(stopped.id, "cancel")  # The only one of its queue.
        assert ends(await bench.outcomes(1)) == ["cancelled"]
        waiting.leave.set()
        assert ends(await bench.outcomes(1)) == ["succeeded"]
        bench.give(last, stopped)  # Given back and claimed again: the stop was for another claim.
        assert ends(await bench.outcomes(2)) == ["succeeded", "succeeded"]
    assert waiting.started == [first, last, stopped]


# A late stop never hits the next job. First: the moments one can think of.


class Gate(list[Job]):
    """The successes of an outbox; calls back the moment one is put, between two jobs of a slot."""

    def __init__(self, on_put: Callable[[], None]) -> None:
        self.puts = 0
        self._on_put = on_put

    def append(self, item: Job) -> None:
        self.puts += 1
        self._on_put()
        super().append(item)


class Pair:
    """Two jobs on one slot: `aim` stops the first, the second must never feel it."""

    def __init__(self, first: Body, reason: StopReason) -> None:
        self.reason = reason
        self.first, self.second = make_job(kind="first"), make_job(kind="second")
        self.second_began = anyio.Event()
        self.bench = ExecutorBench(
            make_handler(first, kind="first"), make_handler(self._run_second, kind="second")
        )

    def aim(self) -> None:
        self.bench.executor.stop(self.first.id, self.reason)

    async def _run_second(self, job: Job, payload: object) -> str:
        self.aim()
        self.second_began.set()
        for _ in range(10):
            await anyio.lowlevel.checkpoint()
            self.aim()
        return "unharmed"

    async def run(self) -> Outcome:
        """Run both; the outcome of the first."""
        async with running(self.bench.executor.run):
            self.bench.give(self.first, self.second)
            first, second = await self.bench.outcomes(2)
        assert first.job is self.first
        assert isinstance(second, Finish)
        assert (second.state, second.result) == ("succeeded", '"unharmed"')
        return first


@every_reason
async def test_a_stop_in_a_handlers_last_synchronous_stretch_hits_nobody(
    reason: StopReason,
) -> None:
    async def finish_while_being_stopped(job: Job, payload: object) -> str:
        await anyio.lowlevel.checkpoint()
        pair.aim()
        return "finished first"

    pair = Pair(finish_while_being_stopped, reason)
    assert ends([await pair.run()]) == ["succeeded"]


@every_reason
async def test_a_stop_in_the_middle_of_a_turn_hits_nobody(
    reason: StopReason, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def finish_while_being_stopped(job: Job, payload: object) -> None:
        pair.aim()

    pair = Pair(finish_while_being_stopped, reason)
    monkeypatch.setattr("chronos_runtime.actors.executor._TURN_S", 3_600.0)
    await pair.bench.outcome_of(make_job(kind="second"))  # From here on nobody yields.
    assert ends([await pair.run()]) == ["succeeded"]


@every_reason
async def test_a_stop_of_a_handler_that_never_waits_hits_nobody(reason: StopReason) -> None:
    async def finish_at_once(job: Job, payload: object) -> None:
        pair.aim()

    pair = Pair(finish_at_once, reason)
    assert ends([await pair.run()]) == ["succeeded"]


@every_reason
async def test_a_stop_and_a_failure_in_one_stretch_hit_only_their_own_job(
    reason: StopReason,
) -> None:
    async def fail_while_being_stopped(job: Job, payload: object) -> None:
        pair.aim()
        raise ValueError

    pair = Pair(fail_while_being_stopped, reason)
    assert ends([await pair.run()]) == [REASONS[reason]]


@every_reason
async def test_a_stop_between_two_jobs_hits_nobody(reason: StopReason) -> None:
    async def do_nothing(job: Job, payload: object) -> None: ...

    pair = Pair(do_nothing, reason)
    pair.bench.outbox.jobs = gate = Gate(pair.aim)
    assert ends([await pair.run()]) == ["succeeded"]
    assert gate.puts


@every_reason
@pytest.mark.parametrize("stop_first", [True, False])
async def test_a_stop_that_meets_the_end_of_the_wait_hits_at_most_its_own_job(
    reason: StopReason, stop_first: bool
) -> None:
    """The handler is woken and stopped in one turn of the loop, in either order."""
    done = anyio.Event()
    waits = anyio.Event()

    async def wait(job: Job, payload: object) -> None:
        waits.set()
        await done.wait()

    async def wake_and_stop() -> None:
        await waits.wait()
        for act in (pair.aim, done.set) if stop_first else (done.set, pair.aim):
            act()

    pair = Pair(wait, reason)
    async with running(wake_and_stop):
        assert ends([await pair.run()])[0] in ("succeeded", REASONS[reason])


async def test_a_timeout_that_expires_while_the_handler_finishes_hits_nobody() -> None:
    bench = ExecutorBench(make_handler(_outlive_by_a_hair, timeout_s=0.05))
    async with running(bench.executor.run):
        for _ in range(2):
            bench.give(make_job(), make_job(timeout_s=3_600.0))
            first, second = await bench.outcomes(2)
            assert ends([first])[0] in ("succeeded", "retry")
            assert ends([second]) == ["succeeded"]


async def _outlive_by_a_hair(job: Job, payload: object) -> None:
    await anyio.sleep(0.1)  # As long as the sweep sleeps.


# Then: every moment there is.


async def _wait_in_steps(job: Job, payload: object) -> str:
    for _ in range(5):
        await anyio.lowlevel.checkpoint()
    return "done"


async def _swallow(job: Job, payload: object) -> str:
    try:
        for _ in range(5):
            await anyio.lowlevel.checkpoint()
    except anyio.get_cancelled_exc_class():
        pass
    return "done"


async def _clean_up(job: Job, payload: object) -> str:
    try:
        for _ in range(3):
            await anyio.lowlevel.checkpoint()
    finally:
        with anyio.CancelScope(shield=True):
            for _ in range(3):
                await anyio.lowlevel.checkpoint()
    return "done"


async def _wait_in_a_group(job: Job, payload: object) -> str:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_wait_in_steps, job, payload)
    return "done"


async def _wait_in_a_scope(job: Job, payload: object) -> str:
    with anyio.move_on_after(3_600):
        await _wait_in_steps(job, payload)
    return "done"


async def _break(job: Job, payload: object) -> None:
    try:
        await _wait_in_steps(job, payload)
    finally:
        raise RuntimeError("broken")


_SHAPES = [_wait_in_steps, _swallow, _clean_up, _wait_in_a_group, _wait_in_a_scope, _break]


@every_reason
@pytest.mark.parametrize("body", _SHAPES)
async def test_whenever_a_stop_comes_only_its_own_job_feels_it(
    body: Body, reason: StopReason
) -> None:
    for steps in range(25):
        pair = Pair(body, reason)

        async def stop_after(steps: int, pair: Pair = pair) -> None:
            for _ in range(steps):
                await anyio.lowlevel.checkpoint()
            pair.aim()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stop_after, steps)
            first = await pair.run()
        own = "retry" if body is _break else "succeeded"
        assert ends([first])[0] in (own, REASONS[reason])
        assert len(pair.bench.inflight) == 0


async def test_stops_rain_on_many_slots_and_every_job_has_one_outcome() -> None:
    """Every third job is stopped, some of them twice, most of them too late."""
    bench = ExecutorBench(_wait_in_steps, concurrency=7)
    jobs = make_jobs(300)
    aimed = jobs[::3]

    async def rain() -> None:
        for job in itertools.chain.from_iterable(zip(aimed, aimed[5:] + aimed[:5], strict=True)):
            bench.executor.stop(job.id, "cancel")
            await anyio.lowlevel.checkpoint()

    async with running(bench.executor.run), anyio.create_task_group() as tasks:
        tasks.start_soon(rain)
        bench.give(*jobs)
        outcomes = await bench.outcomes(300)
    assert {one.job.id for one in outcomes} == {job.id for job in jobs}
    cancelled = {one.job.id for one in outcomes if ends([one]) == ["cancelled"]}
    assert cancelled <= {job.id for job in aimed}
    assert cancelled
