"""`chronos-runtime demo`: a database, a worker, thousands of jobs and the sum at the end.

Everything shown is read from the database, so it is the same for one process and for many.
"""

import os
import shutil
import signal
import socket
import tempfile
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Annotated

import anyio
import typer

from chronos_runtime.cli.database import migrate_schema, running, with_dsn
from chronos_runtime.cli.demo_app import PATH, Order, app, kind_of
from chronos_runtime.cli.demo_sum import add_up
from chronos_runtime.cli.demo_view import Reading, make_view, print_served, print_summary
from chronos_runtime.cli.execute import execute
from chronos_runtime.cli.orders import Orders
from chronos_runtime.cli.output import say
from chronos_runtime.cli.parent import run_family
from chronos_runtime.cli.run import PROCESSES_MAX
from chronos_runtime.cli.signals import Signals
from chronos_runtime.cli.worker import run_worker
from chronos_runtime.client import Client
from chronos_runtime.config import Config
from chronos_runtime.embedded import EmbeddedPostgres
from chronos_runtime.errors import EXIT_BUG
from chronos_runtime.logs import setup_logs
from chronos_runtime.store.postgres import PostgresStore

_BATCH = 2_000
_READY_S = 30.0
_ASK_S = 0.05
_LOOK_S = 0.2
_LOOK_SHARE = 5  # A look may take a fifth of the time, however many jobs there are to count.


def demo(
    *,
    jobs: Annotated[int, typer.Option(min=1, max=10_000_000, help="How many.")] = 20_000,
    processes: Annotated[int, typer.Option(min=1, max=PROCESSES_MAX, help="How many.")] = 1,
    is_serving: Annotated[
        bool, typer.Option("--serve", help="Stay up afterwards, until Ctrl-C.")
    ] = False,
) -> None:
    """Run sample jobs on a throw-away Postgres, watch them, and check the sum.

    Needs no configuration and leaves nothing behind.
    """
    setup_logs("auto", "warning")
    # Resolved: on macOS the temporary folder is a link.
    folder = Path(tempfile.mkdtemp(prefix="chronos-demo-")).resolve()
    try:
        is_right = execute(_demo, folder, jobs, processes, is_serving)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if not is_right:
        raise typer.Exit(EXIT_BUG)


async def _demo(folder: Path, jobs: int, processes: int, is_serving: bool) -> bool:
    with Signals() as signals:
        say("starting a throw-away Postgres …")
        server = EmbeddedPostgres(folder)
        signals.last_words = lambda: _abandon(server, folder)
        async with running(server, signals.stop):
            config = _config(server.dsn, processes)
            await migrate_schema(config.database)
            demo = Demo(config, signals, jobs, processes)
            return await demo.run(is_serving=is_serving)


def _abandon(server: EmbeddedPostgres, folder: Path) -> None:
    """On a second signal: take the server and its folder along, without manners."""
    with suppress(ProcessLookupError):
        os.kill(server.pid, signal.SIGQUIT)
    shutil.rmtree(folder, ignore_errors=True)


def _config(dsn: str, processes: int) -> Config:
    return with_dsn(Config.of({"exporter": {"port": _free_port(processes)}}), dsn)


def _free_port(processes: int) -> int:
    """The first of as many free ports in a row; somebody may still be quicker to take one."""
    while True:
        with closing(socket.socket()) as first:
            first.bind(("127.0.0.1", 0))
            port = int(first.getsockname()[1])
        try:
            for index in range(processes):
                with closing(socket.socket()) as other:
                    other.bind(("127.0.0.1", port + index))
        except (OSError, OverflowError):
            continue
        return port


async def _is_ready(host: str, port: int) -> bool:
    try:
        async with await anyio.connect_tcp(host, port) as stream:
            await stream.send(b"GET /readyz HTTP/1.0\r\n\r\n")
            return b" 200 " in await stream.receive()
    except (OSError, anyio.EndOfStream, anyio.BrokenResourceError):
        return False


class Demo:
    """One run of it."""

    def __init__(self, config: Config, signals: Signals, jobs: int, processes: int) -> None:
        self._config = config
        self._signals = signals
        self._jobs = jobs
        self._processes = processes
        self._store = PostgresStore(config.database)
        self._port = config.exporter.port
        self._url = f"http://{config.exporter.host}:{self._port}/metrics"
        self._enqueued = 0

    async def run(self, *, is_serving: bool) -> bool:
        """Whether the sum was right; an interrupted demo has none and is not wrong."""
        stop = self._signals.stop
        try:
            # Before anything finishes, so that no job of today lands in the default partition.
            await self._store.make_partitions(1)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._work)
                await self._until_ready()
                started = time.monotonic()
                await self._watch()
                if stop.is_set():
                    say("stopped")
                    return True
                ended = time.monotonic()
                summary = await add_up(self._store, self._jobs)
                print_summary(summary, ended - started, self._url)
                if is_serving:
                    print_served(self._config.database.dsn, self._url)
                    await stop.wait()
                stop.set()
            return summary.is_right
        finally:
            with anyio.CancelScope(shield=True):
                await self._store.close()

    async def _work(self) -> None:
        if self._processes == 1:
            await run_worker(app, self._config, self._signals)
        else:
            orders = Orders(app=PATH, config=self._config, log_format="auto", log_level="warning")
            await run_family(orders, self._signals, self._processes)

    async def _until_ready(self) -> None:
        """Wait for the workers, so that their start is not counted as jobs' waiting."""
        stop, host = self._signals.stop, self._config.exporter.host
        with anyio.move_on_after(_READY_S):
            for index in range(self._processes):
                while not stop.is_set() and not await _is_ready(host, self._port + index):
                    with anyio.move_on_after(_ASK_S):
                        await stop.wait()

    async def _watch(self) -> None:
        """Show how it goes, until everything has ended or somebody has had enough."""
        with make_view(self._jobs, self._processes, self._url) as view:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._enqueue)
                while not self._signals.stop.is_set():
                    started = time.monotonic()
                    reading = await self._look()
                    view.show(reading)
                    if reading.finished == self._jobs:
                        return
                    took_s = time.monotonic() - started
                    with anyio.move_on_after(max(_LOOK_S, _LOOK_SHARE * took_s)):
                        await self._signals.stop.wait()

    async def _enqueue(self) -> None:
        client = Client(self._store, app)
        for start in range(0, self._jobs, _BATCH):
            if self._signals.stop.is_set():
                return
            numbers = range(start, min(start + _BATCH, self._jobs))
            await client.enqueue_many(
                client.job(kind_of(number), Order(number)) for number in numbers
            )
            self._enqueued += len(numbers)

    async def _look(self) -> Reading:
        enqueued = self._enqueued  # Before the look: what comes meanwhile must not count as done.
        live = {"ready": 0, "scheduled": 0, "running": 0}
        for depth in await self._store.survey_topics(self._jobs + 1):
            live[depth.state] += depth.jobs
        dead = (await self._store.count_history(self._jobs)).dead
        return Reading(
            enqueued=enqueued,
            finished=max(enqueued - sum(live.values()), 0),
            ready=live["ready"],
            waiting=live["scheduled"],
            running=live["running"],
            dead=dead,
        )
