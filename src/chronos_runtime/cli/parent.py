"""The parent of `run --processes N`: who its children are, and what to do when one dies."""

import logging
import sys
from uuid import UUID

import anyio

from chronos_runtime.cli.orders import COMMAND, Orders
from chronos_runtime.cli.signals import Signals
from chronos_runtime.cli.worker import check_port
from chronos_runtime.errors import StoreUnavailable
from chronos_runtime.family import Family
from chronos_runtime.ids import Worker
from chronos_runtime.store.postgres import PostgresStore

# A claim may have been on its way when the child died, and commit after a first look.
_PASSES_S = (0.0, 1.0, 5.0)
_REAP_MAX = 500
_RETRY_S = 1.0

PATIENCE_S = 20.0
"""Beyond drain_s: what a child may take to write its last outcomes and leave."""

_log = logging.getLogger(__name__)


async def run_family(orders: Orders, signals: Signals, processes: int) -> None:
    """Run children until asked to stop and all have drained."""
    config = orders.config
    for index in range(processes):
        check_port(orders.for_child(index, Worker()).config.exporter)
    store = PostgresStore(config.database)

    async def release(worker: Worker) -> None:
        await release_leases(store, worker, config.heartbeater.lease_s, signals.stop)

    family = Family(
        config.supervisor,
        [sys.executable, "-m", "chronos_runtime.cli", COMMAND, orders.app],
        processes=processes,
        orders=lambda index, worker: orders.for_child(index, worker).encode(),
        release=release,
        patience_s=config.executor.drain_s + PATIENCE_S,
    )
    signals.asked = lambda reason: _log.info(
        "%s: %d processes drain for up to %g s; a second signal stops at once",
        reason,
        processes,
        config.executor.drain_s,
    )
    signals.last_words = family.kill
    try:
        await family.run(signals.stop)
    finally:
        with anyio.CancelScope(shield=True):
            await store.close()
    _log.info("all %d processes drained", processes)


async def release_leases(
    store: PostgresStore, worker: Worker, lease_s: float, stop: anyio.Event
) -> None:
    """Give back what a dead worker held; once its leases have lapsed, others do that anyway."""
    with anyio.move_on_after(lease_s):
        for pause_s in _PASSES_S:
            with anyio.move_on_after(pause_s):
                await stop.wait()
            await _release(store, worker)
            if stop.is_set():
                return


async def _release(store: PostgresStore, worker: Worker) -> None:
    """One pass over all of them, however often the database has to be asked."""
    released, after = 0, UUID(int=0)
    while True:
        try:
            reaped = await store.reap_jobs(
                limit=_REAP_MAX, after=after, dead_worker=(worker.id, worker.last_token)
            )
            if not reaped:
                await store.forget_worker(worker.id)
                break
        except StoreUnavailable as error:
            _log.warning("the leases of a dead process wait for the database: %s", error)
            await anyio.sleep(_RETRY_S)
            continue
        released += len(reaped)
        after = reaped[-1].id
    if released:
        _log.info("released %d leases", released, extra={"worker": worker.name})
