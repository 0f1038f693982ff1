"""What every Python adapter shares: three commands, said in the four functions of a `System`.

    adapter.py enqueue DSN COUNT   makes the schema and enqueues; {"seconds": s}
    adapter.py drain DSN COUNT     runs the worker; {"handled": n} when the last handler runs
    adapter.py latency DSN COUNT   one job after another; {"milliseconds": [...]}

The clock of `enqueue` runs from the first call, on an open connection, to the return of the
last, all committed. That of `latency` runs from the call of enqueue to the start of the handler,
in one process with an idle worker. That of `drain` is not here: `workloads.py` has it.

Imported in each peer's own environment, so nothing but the standard library and uvloop. An
adapter lives no longer than its standard input is open: no worker outlives the run.
"""

import asyncio
import itertools
import json
import os
import random
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import uvloop

KIND = "noop"
PAYLOAD = {"n": 1}
LATENCY_WARMUP = 20  # Jobs before the first that counts: connections, statements, listeners.
LATENCY_GAP_S = (0.005, 0.030)  # Idle, and in step with nobody's timer.

Started = Callable[[], None]
Enqueue = Callable[[], Awaitable[object]]


class System(Protocol):
    """A job queue, as the benchmark sees it."""

    async def prepare(self, dsn: str) -> None:
        """Make the schema in an empty database."""

    async def load(self, dsn: str, count: int) -> float:
        """Enqueue `count` jobs by the fastest documented call; the seconds it took."""

    async def work(self, dsn: str, started: Started) -> None:
        """Run a worker for ever; its handler calls `started` and does nothing else."""

    def producer(self, dsn: str) -> AbstractAsyncContextManager[Enqueue]:
        """A connected producer: a function that enqueues one job."""


def main(system: System) -> None:
    """Run the command the arguments ask for."""
    command, dsn, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    commands = {"enqueue": _enqueue, "drain": _drain, "latency": _latency}
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(commands[command](system, dsn, count))


async def _enqueue(system: System, dsn: str, count: int) -> None:
    await system.prepare(dsn)
    _say(seconds=await system.load(dsn, count))


async def _drain(system: System, dsn: str, count: int) -> None:
    handled = itertools.count(1)  # Atomic, for the peers that run handlers on threads.

    def started() -> None:
        if next(handled) == count:
            _say(handled=count)

    await system.work(dsn, started)
    raise RuntimeError("the worker stopped")


async def _latency(system: System, dsn: str, count: int) -> None:
    await system.prepare(dsn)
    loop, is_started, instants = asyncio.get_running_loop(), asyncio.Event(), list[float]()

    def started() -> None:
        instants.append(time.perf_counter())
        loop.call_soon_threadsafe(is_started.set)

    milliseconds = []
    worker = asyncio.create_task(system.work(dsn, started))
    async with system.producer(dsn) as enqueue:
        for _ in range(LATENCY_WARMUP + count):
            await asyncio.sleep(random.uniform(*LATENCY_GAP_S))
            is_started.clear()
            enqueued = time.perf_counter()
            await enqueue()
            waiting = asyncio.create_task(is_started.wait())
            await asyncio.wait({worker, waiting}, return_when=asyncio.FIRST_COMPLETED)
            if worker.done():
                worker.result()
                raise RuntimeError("the worker stopped")
            milliseconds.append((instants[-1] - enqueued) * 1000)
        _say(milliseconds=milliseconds[LATENCY_WARMUP:])


def _say(**figures: object) -> None:
    print(json.dumps(figures), flush=True)


def _exit_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(1)
