"""A child of `run --processes N`: a worker that lives for as long as its parent wants it to."""

import asyncio
import os
import threading
import time
from typing import Annotated

import typer

from chronos_runtime.app import Chronos
from chronos_runtime.cli.execute import execute
from chronos_runtime.cli.load import load_app
from chronos_runtime.cli.orders import Orders
from chronos_runtime.cli.parent import PATIENCE_S
from chronos_runtime.cli.signals import Signals
from chronos_runtime.cli.worker import ready_database, run_worker
from chronos_runtime.errors import EXIT_SECOND_SIGNAL
from chronos_runtime.family import await_release, take_orders
from chronos_runtime.logs import setup_logs


def child(app: Annotated[str, typer.Argument()]) -> None:  # noqa: ARG001 - shown by `ps`
    """Run one process of a family; only its parent starts this."""
    line, pipe = take_orders()
    orders = Orders.decode(line)
    setup_logs(orders.log_format, orders.log_level, fields={"process": orders.index})
    execute(_run, load_app(orders.app), orders, pipe)


async def _run(app: Chronos, orders: Orders, pipe: int) -> None:
    # Patient: a terminal and a service manager signal the children along with their parent,
    # which is the one to decide that it has been enough.
    with Signals(is_patient=True) as signals:
        drain_s = orders.config.executor.drain_s
        watch = (pipe, asyncio.get_running_loop(), signals, drain_s + PATIENCE_S)
        threading.Thread(target=_watch, args=watch, name="chronos-parent", daemon=True).start()
        async with ready_database(orders.config, should_migrate=False, stop=signals.stop) as config:
            if not signals.stop.is_set():
                await run_worker(app, config, signals, worker=orders.worker)


def _watch(pipe: int, loop: asyncio.AbstractEventLoop, signals: Signals, patience_s: float) -> None:
    await_release(pipe)
    try:
        loop.call_soon_threadsafe(signals.ask, "let go by the parent")
    except RuntimeError:
        return  # The loop is closed: it ended first.
    # With the parent gone nobody else would end a child whose loop is stuck, and its thread of
    # heartbeats would keep its leases for ever.
    time.sleep(patience_s)
    os._exit(EXIT_SECOND_SIGNAL)
