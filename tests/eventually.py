"""Wait for what other processes and tasks do, without guessing how long they take."""

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, overload

import anyio

POLL_S = 0.005

T = TypeVar("T")


@overload
async def eventually(
    probe: Callable[[], Awaitable[T | None]], deadline_s: float = 10.0, *, poll_s: float = POLL_S
) -> T: ...
@overload
async def eventually(
    probe: Callable[[], T | None], deadline_s: float = 10.0, *, poll_s: float = POLL_S
) -> T: ...
async def eventually(
    probe: Callable[[], Any], deadline_s: float = 10.0, *, poll_s: float = POLL_S
) -> Any:
    """The first truthy value that `probe` gives; at the deadline, fail with the last one seen."""
    deadline = anyio.current_time() + deadline_s
    while True:
        value = probe()
        if inspect.isawaitable(value):
            value = await value
        if value:
            return value
        if anyio.current_time() >= deadline:
            # Not pytest.fail: its BaseException tears down the event loop under the fixtures.
            raise AssertionError(f"still {value!r} after {deadline_s:g} s")
        await anyio.sleep(poll_s)
