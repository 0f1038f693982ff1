"""Channels carry hints and lists of items; nothing that is cancelled can lose either."""

import anyio
import anyio.lowlevel
import pytest
from anyio import wait_all_tasks_blocked

from chronos_runtime.nudge import Mailbox, Nudge
from tests.actors.bench import DEADLINE_S, on_both_loops
from tests.eventually import eventually

pytestmark = on_both_loops

STEPS = 8  # More checkpoints than any single call in here passes.


async def test_nudges_before_the_look_count_once() -> None:
    nudge = Nudge()
    for _ in range(3):
        nudge()
    assert await nudge.wait(DEADLINE_S)
    assert not await nudge.wait(0.0)


async def test_a_nudge_wakes_who_waits() -> None:
    nudge = Nudge()
    woken: list[bool] = []

    async def wait() -> None:
        woken.append(await nudge.wait())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        await wait_all_tasks_blocked()
        nudge()
        nudge()  # Before the other has looked.
    assert woken == [True]
    assert not await nudge.wait(0.0)


async def test_a_wait_ends_when_its_time_is_up() -> None:
    assert not await Nudge().wait(0.001)


async def test_a_nudge_that_comes_after_the_time_is_up_is_kept() -> None:
    nudge = Nudge()
    assert not await nudge.wait(0.0)
    nudge()
    assert await nudge.wait(0.0)


async def test_closing_wakes_who_waits_and_everybody_after() -> None:
    nudge = Nudge()
    woken: list[bool] = []

    async def wait() -> None:
        woken.append(await nudge.wait())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        await wait_all_tasks_blocked()
        nudge.close()
    assert woken == [False]
    with anyio.fail_after(DEADLINE_S):
        assert not await nudge.wait()
        assert not await nudge.wait(3_600.0)
    assert nudge.is_closed


async def test_a_nudge_after_the_close_hurts_nobody() -> None:
    nudge = Nudge()
    nudge.close()
    nudge()
    assert not await nudge.wait()


async def _cancel_after(steps: int, scope: anyio.CancelScope) -> None:
    for _ in range(steps):
        await anyio.lowlevel.checkpoint()
    scope.cancel()


async def test_a_nudge_is_either_heard_or_kept_whenever_the_wait_is_cancelled() -> None:
    """The wait is cancelled at each of its steps, the nudge comes at each of its steps."""
    for cancel_at in range(STEPS):
        for nudge_at in range(STEPS):
            nudge = Nudge()
            heard: list[bool] = []

            async def wait(scope: anyio.CancelScope, nudge: Nudge, heard: list[bool]) -> None:
                with scope:
                    heard.append(await nudge.wait())

            async def act(steps: int, nudge: Nudge) -> None:
                for _ in range(steps):
                    await anyio.lowlevel.checkpoint()
                nudge()

            async with anyio.create_task_group() as tasks:
                scope = anyio.CancelScope()
                tasks.start_soon(wait, scope, nudge, heard)
                tasks.start_soon(_cancel_after, cancel_at, scope)
                tasks.start_soon(act, nudge_at, nudge)
            assert heard == [True] or await nudge.wait(0.0), (cancel_at, nudge_at)


async def test_a_nudge_works_after_a_wait_was_cancelled() -> None:
    nudge = Nudge()
    with anyio.CancelScope() as scope:
        scope.cancel()
        await nudge.wait()
    nudge()
    assert await nudge.wait(DEADLINE_S)


async def test_the_reader_takes_everything_there_is() -> None:
    mailbox: Mailbox[int] = Mailbox(10)
    mailbox.put(1)
    mailbox.put_all([2, 3])
    mailbox.put(4)
    assert len(mailbox) == 4
    assert mailbox.fill == 0.4
    assert await mailbox.take() == [1, 2, 3, 4]
    assert len(mailbox) == 0


async def test_who_cannot_wait_takes_what_there_is() -> None:
    mailbox: Mailbox[int] = Mailbox(10)
    assert mailbox.take_now() == []
    mailbox.put_all([1, 2])
    assert mailbox.take_now() == [1, 2]
    mailbox.put(3)
    assert await mailbox.take() == [3]


@pytest.mark.parametrize("many", [True, False])
async def test_an_item_wakes_the_reader(many: bool) -> None:
    mailbox: Mailbox[int] = Mailbox(10)
    taken: list[list[int]] = []

    async def read() -> None:
        while items := await mailbox.take():
            taken.append(items)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        for number in range(3):
            await wait_all_tasks_blocked()
            if many:
                mailbox.put_all([number])
            else:
                mailbox.put(number)
        await eventually(lambda: len(taken) == 3)
        mailbox.close()
    assert taken == [[0], [1], [2]]


async def test_putting_nothing_wakes_nobody() -> None:
    mailbox: Mailbox[int] = Mailbox(10)
    mailbox.put_all([])
    with anyio.move_on_after(0.01) as scope:
        await mailbox.take()
    assert scope.cancelled_caught


async def test_a_closed_mailbox_is_drained_first_and_empty_afterwards() -> None:
    mailbox: Mailbox[int] = Mailbox(10)
    mailbox.put(1)
    mailbox.close()
    assert await mailbox.take() == [1]
    assert await mailbox.take() == []
    assert await mailbox.take() == []


async def test_closing_wakes_the_reader() -> None:
    mailbox: Mailbox[int] = Mailbox(10)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(mailbox.take)
        await wait_all_tasks_blocked()
        mailbox.close()


async def test_more_items_than_credit_is_a_bug() -> None:
    mailbox: Mailbox[int] = Mailbox(2)
    mailbox.put_all([1, 2])
    with pytest.raises(AssertionError, match="credit"):
        mailbox.put(3)
    with pytest.raises(AssertionError, match="credit"):
        Mailbox[int](2).put_all([1, 2, 3])


async def test_a_cancelled_take_loses_nothing() -> None:
    """The reader is cancelled at each of its steps, and a new one goes on where it was."""
    for cancel_at in range(STEPS):
        for put_at in range(STEPS):
            mailbox: Mailbox[int] = Mailbox(10)
            taken: list[int] = []

            async def read(
                scope: anyio.CancelScope, mailbox: Mailbox[int], taken: list[int]
            ) -> None:
                with scope:
                    while True:
                        taken += await mailbox.take()

            async def write(steps: int, mailbox: Mailbox[int]) -> None:
                mailbox.put(1)
                for _ in range(steps):
                    await anyio.lowlevel.checkpoint()
                mailbox.put_all([2, 3])

            async with anyio.create_task_group() as tasks:
                scope = anyio.CancelScope()
                tasks.start_soon(read, scope, mailbox, taken)
                tasks.start_soon(_cancel_after, cancel_at, scope)
                tasks.start_soon(write, put_at, mailbox)
            if len(taken) < 3:
                with anyio.fail_after(DEADLINE_S):
                    taken += await mailbox.take()
            assert taken == [1, 2, 3], (cancel_at, put_at)
