"""An errand ends once, whoever runs it, whatever becomes of whoever waits for it."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from chronos_runtime.store.errand import Errand

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, bool]]:
    return ("asyncio", {"use_uvloop": True})


class Scene:
    """An errand of two waits, each for a future of the test's."""

    def __init__(self, future: Callable[[], "asyncio.Future[int]"] = asyncio.Future) -> None:
        self.first, self.second = future(), future()
        self.away: set[asyncio.Task[Any]] = set()
        self.ran_in: list[object] = []
        self.ended: list[object] = []
        self.errand: Errand[int] = Errand(self.away)
        self.coroutine = self._run()

    async def _run(self) -> int:
        result = 0
        try:
            for wait in (self.first, self.second):
                self.ran_in.append(asyncio.current_task())
                result += await wait
            self.ran_in.append(asyncio.current_task())
        except BaseException as error:
            self.ended.append(error)
            raise
        self.ended.append(result)
        return result


async def call(scene: Scene) -> int:
    return await scene.errand.run(scene.coroutine)


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_the_waiting_task_runs_it_to_its_end() -> None:
    scene = Scene()
    task = asyncio.ensure_future(call(scene))
    await turns()
    scene.first.set_result(3)
    await turns()
    scene.second.set_result(4)
    assert await task == 7
    assert scene.ran_in == [task] * 3
    assert not scene.errand.has_left


async def test_an_error_it_waits_for_is_raised_in_it_and_comes_out_of_it() -> None:
    scene = Scene()
    task = asyncio.ensure_future(call(scene))
    await turns()
    error = LookupError("mine")
    scene.first.set_exception(error)
    with pytest.raises(LookupError, match="mine"):
        await task
    assert scene.ended == [error]


# The one in Python is stricter: it must not be looked at before it is done.
@pytest.mark.parametrize("future", [asyncio.Future, asyncio.futures._PyFuture])  # type: ignore[attr-defined]
async def test_it_goes_on_in_a_task_of_its_own_when_its_caller_is_cancelled(
    future: Callable[[], "asyncio.Future[int]"],
) -> None:
    scene = Scene(future)
    task = asyncio.ensure_future(call(scene))
    await turns()
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert scene.errand.has_left
    assert scene.ended == []
    assert not scene.first.done()
    scene.first.set_result(3)
    await turns()
    scene.second.set_result(4)
    assert await scene.errand.wait() == 7
    assert scene.ended == [7]
    await turns()
    assert scene.away == set()


async def test_a_cancellation_that_meets_the_answer_is_not_lost_and_loses_nothing() -> None:
    scene = Scene()
    task = asyncio.ensure_future(call(scene))
    await turns()
    scene.first.set_result(3)  # The task is woken by it, but has not run when it is cancelled.
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    scene.second.set_result(4)
    assert await scene.errand.wait() == 7


async def test_a_caller_cancelled_twice_at_once_goes_once() -> None:
    scene = Scene()
    task = asyncio.ensure_future(call(scene))
    await turns()
    task.cancel()
    task.cancel()
    await asyncio.wait([task])
    scene.first.set_result(3)
    scene.second.set_result(4)
    await scene.errand.wait()
    assert scene.ended == [7]


@pytest.mark.parametrize("has_left", [False, True])
async def test_whoever_cuts_it_ends_it_wherever_it_runs(has_left: bool) -> None:
    scene = Scene()
    task = asyncio.ensure_future(call(scene))
    await turns()
    if has_left:
        task.cancel()
        await asyncio.wait([task])
    scene.errand.cut()
    if has_left:
        with pytest.raises(asyncio.CancelledError):
            await scene.errand.wait()
    await asyncio.wait([task])
    assert task.cancelled()
    assert scene.errand.has_left == has_left
    assert [type(one) for one in scene.ended] == [asyncio.CancelledError]


async def test_whoever_cuts_it_after_it_has_gone_on_alone_ends_it_too() -> None:
    scene = Scene()
    task = asyncio.ensure_future(call(scene))
    await turns()
    task.cancel()
    await asyncio.wait([task])
    scene.first.set_result(3)
    await turns()
    scene.errand.cut()
    with pytest.raises(asyncio.CancelledError):
        await scene.errand.wait()
    assert [type(one) for one in scene.ended] == [asyncio.CancelledError]


async def test_it_may_leave_before_it_begins() -> None:
    scene = Scene()
    scene.errand.leave(scene.coroutine)
    scene.first.set_result(3)
    scene.second.set_result(4)
    assert await scene.errand.wait() == 7
    assert asyncio.current_task() not in scene.ran_in


async def test_a_wait_for_the_next_turn_of_the_loop_is_passed_on() -> None:
    async def run() -> int:
        await asyncio.sleep(0)
        return 7

    errand: Errand[int] = Errand(set())
    assert await errand.run(run()) == 7
