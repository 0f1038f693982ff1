"""One worker process: wait for the database, run the runtime, drain on the first signal."""

import logging
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing

import anyio

from chronos_runtime.app import Chronos
from chronos_runtime.cli.database import (
    check_schema,
    embedded_database,
    embedded_folder,
    migrate_schema,
)
from chronos_runtime.cli.settings import mask_dsn
from chronos_runtime.cli.signals import Signals
from chronos_runtime.cli.waiting import unless, until_available
from chronos_runtime.config import Config, ExporterConfig
from chronos_runtime.errors import ConfigError
from chronos_runtime.garbage import collect_less
from chronos_runtime.ids import Worker
from chronos_runtime.runtime import Runtime

_log = logging.getLogger(__name__)


@asynccontextmanager
async def ready_database(
    config: Config, *, should_migrate: bool, stop: anyio.Event
) -> AsyncIterator[Config]:
    """The config of a database that answers and has the schema we need, unless `stop` is set."""
    if config.database.dsn:
        prepare = _migrate if should_migrate else _check
        _log.info("database %s", mask_dsn(config.database.dsn))
        await unless(stop, until_available(lambda: prepare(config)))
        yield config
        return
    _log.warning(
        "no DSN given: starting an embedded Postgres, for development; give --dsn or CHRONOS_DSN"
        " for a server of your own",
        extra={"data_dir": str(embedded_folder(config))},
    )
    async with embedded_database(config, stop) as embedded:
        await _migrate(embedded)
        yield embedded


async def _check(config: Config) -> None:
    await check_schema(config.database)


async def _migrate(config: Config) -> None:
    for migration in await migrate_schema(config.database):
        _log.info("applied migration %04d_%s", migration.number, migration.name)


async def run_worker(
    app: Chronos, config: Config, signals: Signals, *, worker: Worker | None = None
) -> None:
    """Run until asked to stop, then drain."""
    check_port(config.exporter)
    runtime = Runtime(app, config, worker=worker)
    drain_s = config.executor.drain_s

    def asked(reason: str) -> None:
        _log.info(
            "%s: draining %d running jobs for up to %g s, until %s%s",
            reason,
            runtime.inflight.running,
            drain_s,
            time.strftime("%H:%M:%S", time.localtime(time.time() + drain_s)),
            "" if signals.is_patient else "; a second signal stops at once",
        )

    signals.asked = asked
    for topic in sorted(set(config.topics) - runtime.handler_topics):
        _log.warning("topics: no handler of this app names %r; is it spelled right?", topic)
    if not app.handlers:
        _log.info("no app: serving the built-in kinds alone")
    _log.info(
        "worker up",
        extra={
            "worker": runtime.worker.name,
            "topics": ",".join(runtime.topics),
            "kinds": len(app.handlers),
            "concurrency": config.executor.concurrency,
        },
    )
    collect_less()
    await runtime.run(signals.stop)
    _log.info("drained")


def check_port(config: ExporterConfig) -> None:
    """Refuse a port that is taken at once, not after a series of restarts."""
    if not config.enabled or config.port == 0:
        return
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    with closing(socket.socket(family)) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((config.host, config.port))
        except OSError as error:
            raise ConfigError(
                f"exporter.port: cannot listen on {config.host}:{config.port} ({error.strerror});"
                " choose another with --metrics-port, 0 for any free one"
            ) from error
