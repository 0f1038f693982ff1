"""A family: one parent process that keeps N workers alive.

A child is started, not forked, and gets its orders on a pipe that is its standard input. The
parent holds the other end for as long as it wants the child: when the pipe closes, the child
drains, whether the parent closed it or was killed. A child that dies is replaced, with backoff
and within a budget, by one of a new identity; since the operating system has said that it is
dead, its leases are given back at once instead of being left to lapse.

If the parent dies right now: every child drains and ends, and nothing is lost.
"""

import logging
import os
import random
import signal
import time
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any

import anyio
import anyio.to_thread
from anyio.abc import Process

from chronos_runtime.config import SupervisorConfig
from chronos_runtime.errors import ChronosError, CrashLoop
from chronos_runtime.ids import Worker

_log = logging.getLogger(__name__)


class Child:
    """A running child and the pipe that keeps it."""

    def __init__(self, process: Process, pipe: int, worker: Worker) -> None:
        self.process = process
        self.worker = worker
        self._pipe: int | None = pipe

    def drain(self) -> None:
        """Let go of it: it finishes what it runs and ends."""
        if self._pipe is not None:
            os.close(self._pipe)
            self._pipe = None

    def kill(self) -> None:
        """End it at once; from any thread."""
        if self.process.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.process.pid, signal.SIGKILL)

    async def wait(self) -> int:
        """Its exit code, negative for a signal."""
        code = await self.process.wait()
        self.drain()
        return code


class Family:
    """Keeps `processes` children of `command` alive until asked to stop.

    `orders` are what a child is told, given its place and identity; `release` gives back the
    leases of a worker that is dead. A child that has not drained after `patience_s` is killed.
    """

    def __init__(
        self,
        config: SupervisorConfig,
        command: Sequence[str],
        *,
        processes: int,
        orders: Callable[[int, Worker], bytes],
        release: Callable[[Worker], Coroutine[Any, Any, None]],
        patience_s: float,
    ) -> None:
        self._config = config
        self._command = list(command)
        self._processes = processes
        self._orders = orders
        self._release = release
        self._patience_s = patience_s
        self._children: dict[int, Child] = {}
        self._failure: ChronosError | None = None

    async def run(self, stop: anyio.Event) -> None:
        """Run until `stop` is set and every child has drained."""
        async with anyio.create_task_group() as tasks:
            for index in range(self._processes):
                tasks.start_soon(self._keep, index, stop)
        if self._failure is not None:
            raise self._failure

    def kill(self) -> None:
        """End every child at once; from any thread."""
        for child in list(self._children.values()):
            child.kill()

    async def _keep(self, index: int, stop: anyio.Event) -> None:
        """One place in the family: a child, its successor, and so on."""
        crashes: deque[float] = deque()
        async with anyio.create_task_group() as releases:
            while not stop.is_set():
                child = self._children[index] = await self._spawn(index)
                code = await self._end_of(child, index, stop)
                if code != 0:
                    releases.start_soon(self._release, child.worker)
                if stop.is_set():
                    self._note_drained(index, code)
                    return
                delay_s = self._note_death(index, code, crashes)
                if delay_s is None:
                    stop.set()  # The others drain; the failure is raised after them.
                    return
                with anyio.move_on_after(delay_s):
                    await stop.wait()

    async def _spawn(self, index: int) -> Child:
        worker = Worker()
        # Neither end is inherited by anybody but as the standard input of this very child:
        # a sibling that held the writing end would keep it alive after the parent's death.
        reading, writing = os.pipe()
        try:
            process = await anyio.open_process(
                self._command, stdin=reading, stdout=None, stderr=None
            )
        except BaseException:
            os.close(writing)
            raise
        finally:
            os.close(reading)
        # On a thread: orders longer than the pipe's buffer wait until the child reads them.
        await anyio.to_thread.run_sync(_write, writing, self._orders(index, worker))
        _log.info("process %d up", index, extra={"child_pid": process.pid, "worker": worker.name})
        return Child(process, writing, worker)

    async def _end_of(self, child: Child, index: int, stop: anyio.Event) -> int:
        async def drain_in_time() -> None:
            await stop.wait()
            child.drain()
            await anyio.sleep(self._patience_s)
            _log.error("process %d did not drain in %g s: killed", index, self._patience_s)
            child.kill()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(drain_in_time)
            code = await child.wait()
            tasks.cancel_scope.cancel()
        return code

    def _note_drained(self, index: int, code: int) -> None:
        if code != 0 and self._failure is None:
            self._failure = ChronosError(f"process {index} {_fate(code)} while it drained")

    def _note_death(self, index: int, code: int, crashes: deque[float]) -> float | None:
        """How long to wait before the next child, or None when it is enough."""
        now = time.monotonic()
        crashes.append(now)
        while crashes[0] < now - self._config.window_s:
            crashes.popleft()
        if len(crashes) > self._config.restarts_max:
            self._failure = CrashLoop(
                f"process {index} ended {len(crashes)} times within {self._config.window_s:g} s;"
                f" the last one {_fate(code)}"
            )
            return None
        delay_s = float(self._config.backoff_s * 2 ** min(len(crashes) - 1, 10))
        delay_s = min(delay_s, self._config.backoff_max_s) * random.uniform(0.5, 1.0)
        _log.error("process %d %s; the next one in %.1f s", index, _fate(code), delay_s)
        return delay_s


def take_orders() -> tuple[bytes, int]:
    """In the child: its orders, and the end of the pipe to watch.

    The pipe moves away from standard input, where programs that handlers start would find it.
    """
    pipe = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    orders = bytearray()
    while not orders.endswith(b"\n"):
        part = os.read(pipe, 65_536)
        if not part:
            raise ChronosError("no orders: only a parent process starts a child")
        orders += part
    return bytes(orders), pipe


def await_release(pipe: int) -> None:
    """In the child, on a thread: return when the parent lets go or is gone."""
    while os.read(pipe, 4096):
        pass


def _write(pipe: int, orders: bytes) -> None:
    rest = memoryview(orders + b"\n")
    with suppress(BrokenPipeError):  # It died before it could read; its exit code says more.
        while rest:
            rest = rest[os.write(pipe, rest) :]


def _fate(code: int) -> str:
    if code >= 0:
        return f"ended with code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
