"""What a crash means: an outage is waited out, a crash has a budget, a bug ends the process."""

import logging
from collections.abc import Iterable, Iterator
from types import SimpleNamespace

import anyio
import pytest
from anyio import wait_all_tasks_blocked

from chronos_runtime.config import SupervisorConfig
from chronos_runtime.errors import ConfigError, CrashLoop, StoreError, StoreUnavailable
from chronos_runtime.metrics import Metrics
from chronos_runtime.supervisor import Supervisor
from tests.actors.bench import on_both_loops, restarts

pytestmark = on_both_loops


class Scripted:
    """An actor that raises what it is given, one thing a run, and then returns."""

    name = "claimer"

    def __init__(self, errors: Iterable[BaseException] = ()) -> None:
        self._errors: Iterator[BaseException] = iter(errors)
        self.runs = 0

    async def run(self) -> None:
        self.runs += 1
        await anyio.lowlevel.checkpoint()
        for error in self._errors:
            raise error


class Endless:
    """An actor that never ends by itself."""

    name = "watchdog"

    async def run(self) -> None:
        await anyio.sleep_forever()


def make_supervisor(restarts_max: int = 3, window_s: float = 60.0) -> tuple[Supervisor, Metrics]:
    metrics = Metrics()
    config = SupervisorConfig(
        restarts_max=restarts_max, window_s=window_s, backoff_s=0.0001, backoff_max_s=0.0001
    )
    return Supervisor(config, metrics), metrics


async def test_an_actor_that_returns_has_ended() -> None:
    supervisor, metrics = make_supervisor()
    actor = Scripted()
    await supervisor.run(actor)
    assert (actor.runs, restarts(metrics, "claimer")) == (1, 0)


async def test_an_outage_is_waited_out_whatever_the_budget() -> None:
    supervisor, metrics = make_supervisor(restarts_max=1)
    actor = Scripted(StoreUnavailable("away") for _ in range(50))
    await supervisor.run(actor)
    assert (actor.runs, restarts(metrics, "claimer")) == (51, 50)


async def test_an_outage_inside_a_group_is_an_outage() -> None:
    supervisor, _ = make_supervisor(restarts_max=1)
    actor = Scripted(ExceptionGroup("tasks", [StoreUnavailable("away")]) for _ in range(10))
    await supervisor.run(actor)
    assert actor.runs == 11


async def test_a_crash_is_restarted_within_its_budget() -> None:
    supervisor, metrics = make_supervisor(restarts_max=3)
    actor = Scripted(ValueError("no") for _ in range(3))
    await supervisor.run(actor)
    assert (actor.runs, restarts(metrics, "claimer")) == (4, 3)


async def test_a_crash_beyond_the_budget_ends_the_process() -> None:
    supervisor, metrics = make_supervisor(restarts_max=3)
    actor = Scripted(ValueError(f"number {number}") for number in range(10))
    with pytest.raises(CrashLoop, match=r"claimer crashed 4 times.*ValueError: number 3") as caught:
        await supervisor.run(actor)
    assert (actor.runs, restarts(metrics, "claimer")) == (4, 3)
    assert isinstance(caught.value.__cause__, ValueError)


async def test_what_the_database_refuses_for_good_is_a_crash() -> None:
    supervisor, _ = make_supervisor(restarts_max=2)
    with pytest.raises(CrashLoop):
        await supervisor.run(Scripted(StoreError("no such table") for _ in range(10)))


async def test_outages_in_between_do_not_use_the_budget_up() -> None:
    supervisor, _ = make_supervisor(restarts_max=2)
    away, broken = StoreUnavailable("away"), ValueError("no")
    actor = Scripted([broken, *[away] * 10, broken, *[away] * 10])
    await supervisor.run(actor)
    assert actor.runs == 23


async def test_crashes_are_forgotten_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    clock = SimpleNamespace(monotonic=lambda: now)
    monkeypatch.setattr("chronos_runtime.supervisor.time", clock)
    supervisor, _ = make_supervisor(restarts_max=2, window_s=60.0)

    def crashes() -> Iterator[Exception]:
        nonlocal now
        for _ in range(20):
            now += 31.0  # Never more than two within a minute.
            yield ValueError("no")

    actor = Scripted(crashes())
    await supervisor.run(actor)
    assert actor.runs == 21


@pytest.mark.parametrize(
    "error",
    [
        AssertionError("bug"),
        ExceptionGroup("tasks", [AssertionError("bug")]),
        ExceptionGroup("tasks", [ValueError(), ExceptionGroup("more", [AssertionError("bug")])]),
        ExceptionGroup("tasks", [StoreUnavailable("away"), AssertionError("bug")]),
    ],
)
async def test_a_bug_ends_the_process_at_once(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    supervisor, metrics = make_supervisor()
    actor = Scripted([error])
    with pytest.raises(AssertionError, match="bug"):
        await supervisor.run(actor)
    assert (actor.runs, restarts(metrics, "claimer")) == (1, 0)
    assert [line.levelno for line in caplog.records] == [logging.CRITICAL]


async def test_a_bad_setting_is_not_tried_again() -> None:
    supervisor, _ = make_supervisor()
    actor = Scripted([ConfigError("exporter.port: taken")])
    with pytest.raises(ConfigError):
        await supervisor.run(actor)
    assert actor.runs == 1


@pytest.mark.parametrize("is_grouped", [True, False])
async def test_a_budget_spent_below_is_not_spent_again_above(is_grouped: bool) -> None:
    """An actor that supervises another on a thread: its crash loop is this one's, too."""
    supervisor, _ = make_supervisor()
    broken: Exception = CrashLoop("heartbeater crashed 4 times")
    actor = Scripted([ExceptionGroup("tasks", [broken]) if is_grouped else broken])
    with pytest.raises(CrashLoop, match="heartbeater"):
        await supervisor.run(actor)
    assert actor.runs == 1


async def test_cancellation_passes_through_a_running_actor() -> None:
    supervisor, metrics = make_supervisor()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(supervisor.run, Endless())
        await wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    assert restarts(metrics, "watchdog") == 0


async def test_cancellation_passes_through_the_wait_before_a_restart() -> None:
    metrics = Metrics()
    supervisor = Supervisor(SupervisorConfig(backoff_s=3_600, backoff_max_s=3_600), metrics)
    actor = Scripted([ValueError("no")] * 2)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(supervisor.run, actor)
        await wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    assert (actor.runs, restarts(metrics, "claimer")) == (1, 1)


async def test_an_exit_is_nobodys_crash() -> None:
    supervisor, metrics = make_supervisor()
    group = BaseExceptionGroup("tasks", [KeyboardInterrupt()])
    with pytest.raises(BaseExceptionGroup) as caught:
        await supervisor.run(Scripted([group]))
    assert caught.value is group
    assert restarts(metrics, "claimer") == 0


async def test_waits_double_up_to_a_bound_and_are_spread() -> None:
    supervisor = Supervisor(SupervisorConfig(backoff_s=1.0, backoff_max_s=5.0), Metrics())
    for failures, longest in ((1, 1.0), (2, 2.0), (3, 4.0), (4, 5.0), (1_000_000, 5.0)):
        delays = [supervisor._delay_s(failures) for _ in range(100)]
        assert longest / 2 <= min(delays) < max(delays) <= longest


async def test_every_crash_is_told_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    supervisor, _ = make_supervisor()
    await supervisor.run(Scripted([ValueError("no"), StoreUnavailable("away")]))
    crash, outage = caplog.records
    assert crash.levelno == logging.ERROR
    assert crash.exc_info is not None
    assert isinstance(crash.exc_info[1], ValueError)
    assert (outage.levelno, outage.getMessage()) == (logging.WARNING, "claimer: away")
