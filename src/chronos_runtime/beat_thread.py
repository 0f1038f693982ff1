"""The heartbeater's own thread, with a loop and a connection of its own.

A handler that blocks the main loop, by `time.sleep` or by crunching numbers, cannot stop the
beats. The same thread watches the main loop: one that does not answer for `lag_warn_s` is
counted and logged, with the stack that blocks it.

A C call that holds the interpreter's lock stops this thread too; only another process could
outlive that, and there the watchdog of another process does what it must.
"""

import asyncio
import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import Future
from uuid import UUID

import anyio
from anyio.from_thread import start_blocking_portal

from chronos_runtime.actors.heartbeater import Heartbeater
from chronos_runtime.config import HeartbeaterConfig
from chronos_runtime.inflight import Inflight
from chronos_runtime.metrics import Metrics
from chronos_runtime.store import Store
from chronos_runtime.supervisor import Supervisor

_PING_S = 0.5  # Each ping wakes both loops: 0.4 ms of an idle process.
_STACK_FRAMES = 12

_log = logging.getLogger(__name__)


class BeatThread:
    """Hosts a heartbeater on a thread; the same actor to its supervisor."""

    name = "heartbeater"

    def __init__(
        self,
        config: HeartbeaterConfig,
        store: Store,
        inflight: Inflight,
        metrics: Metrics,
        supervisor: Supervisor,
        *,
        worker: str,
        lost: Callable[[UUID], None],
        cancel: Callable[[UUID], None],
    ) -> None:
        self._config = config
        self._store = store
        self._inflight = inflight
        self._metrics = metrics
        self._supervisor = supervisor
        self._worker = worker
        self._lost = lost
        self._cancel = cancel

    async def run(self) -> None:
        """Beat on the thread until cancelled; what breaks there is raised here."""
        home = asyncio.get_running_loop()
        host = start_blocking_portal("asyncio", {"use_uvloop": True}, name="chronos-heartbeater")
        portal = await anyio.to_thread.run_sync(host.__enter__)
        ended: Future[None] = portal.start_task_soon(self._beat, home, threading.get_ident())
        try:
            await asyncio.wrap_future(ended)
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(_stop, ended, host.__exit__)

    async def _beat(self, home: asyncio.AbstractEventLoop, home_thread: int) -> None:
        """On the thread: the heartbeater under supervision, and the watch over the home loop."""

        def at_home(callback: Callable[[UUID], None]) -> Callable[[UUID], None]:
            return lambda id: _call_soon(home, lambda: callback(id))

        heartbeater = Heartbeater(
            self._config,
            self._store,
            self._inflight,
            self._metrics,
            worker=self._worker,
            lost=at_home(self._lost),
            cancel=at_home(self._cancel),
        )
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._watch, home, home_thread)
                await self._supervisor.run(heartbeater)
        finally:
            with anyio.CancelScope(shield=True):
                await self._store.close()

    async def _watch(self, home: asyncio.AbstractEventLoop, home_thread: int) -> None:
        """Ping the home loop, measure its answer, name what blocks it."""
        while True:
            answered = threading.Event()
            asked = time.monotonic()
            _call_soon(home, answered.set)
            is_named = False
            while not answered.is_set():
                await anyio.sleep(0.01)
                lag = time.monotonic() - asked
                self._metrics.loop_lag.set(lag)
                if lag > self._config.lag_warn_s and not is_named:
                    is_named = True
                    self._metrics.loop_blocks.inc()
                    _log.warning(
                        "the event loop has been blocked for %.1f s; the beats go on",
                        lag,
                        extra={"stack": _stack_of(home_thread)},
                    )
            self._metrics.loop_lag.set(time.monotonic() - asked)
            await anyio.sleep(_PING_S)


def _call_soon(loop: asyncio.AbstractEventLoop, callback: Callable[[], object]) -> None:
    try:
        loop.call_soon_threadsafe(callback)
    except RuntimeError:
        pass  # The home loop is closed: the process is ending.


def _stack_of(thread: int) -> str:
    frame = sys._current_frames().get(thread)
    if frame is None:
        return ""
    return "".join(traceback.format_stack(frame, limit=_STACK_FRAMES))


def _stop(ended: Future[None], leave: Callable[[None, None, None], object]) -> None:
    ended.cancel()  # Cancels the task on the thread, whose current statement still ends.
    leave(None, None, None)
