"""What a handler can do to its slot on asyncio alone: cancellations that come from nowhere."""

import asyncio
from collections.abc import Awaitable, Callable

import anyio
import msgspec
import pytest

from chronos_runtime.job import Job
from tests.actors.bench import (
    ExecutorBench,
    ends,
    in_order_of,
    make_handler,
    make_job,
    running,
)


async def await_what_is_cancelled(job: Job, payload: object) -> None:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    future.cancel()
    await future


async def raise_cancelled(job: Job, payload: object) -> None:
    raise asyncio.CancelledError


async def cancel_own_task(job: Job, payload: object) -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)


async def swallow_own_cancellation(job: Job, payload: object) -> str:
    """As timeouts were written before there was `asyncio.timeout`."""
    try:
        await cancel_own_task(job, payload)
    except asyncio.CancelledError:
        return "timed out"
    raise AssertionError("unreachable")


async def sleep_for_ever(job: Job, payload: object) -> None:
    await anyio.sleep_forever()


async def do_nothing(job: Job, payload: object) -> None: ...


@pytest.mark.parametrize("handler", [await_what_is_cancelled, raise_cancelled, cancel_own_task])
async def test_a_cancellation_nobody_asked_for_is_a_failed_attempt(
    handler: Callable[[Job, object], Awaitable[object]],
) -> None:
    outcome = await ExecutorBench(handler).return_of(make_job())
    assert outcome.why == "retry"
    assert outcome.error is not None
    assert msgspec.json.decode(outcome.error)["type"] == "CancelledError"


@pytest.mark.parametrize("handler", [cancel_own_task, swallow_own_cancellation])
async def test_a_handler_that_cancels_its_task_costs_no_slot(
    handler: Callable[[Job, object], Awaitable[object]],
) -> None:
    late = make_handler(sleep_for_ever, kind="late", timeout_s=0.01)
    bench = ExecutorBench(make_handler(handler), late, make_handler(do_nothing, kind="next"))
    async with running(bench.executor.run):
        for _ in range(3):
            others = [make_job(kind="late"), make_job(kind="next")]
            bench.give(make_job(), *others)
            assert ends(in_order_of(others, await bench.outcomes(3))) == ["retry", "succeeded"]


async def test_timeouts_of_asyncio_work_inside_a_handler() -> None:
    async def give_up_early(job: Job, payload: object) -> str:
        try:
            async with asyncio.timeout(0.001):
                await asyncio.sleep(3_600)
        except TimeoutError:
            return "gave up"
        raise AssertionError("unreachable")

    bench = ExecutorBench(give_up_early)
    async with running(bench.executor.run):
        bench.give(make_job(), make_job())
        assert ends(await bench.outcomes(2)) == ["succeeded"] * 2
