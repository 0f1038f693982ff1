"""`chronos-runtime run`: a worker, or a family of them."""

import logging
import os
from typing import Annotated, TypeVar, get_args

import typer

from chronos_runtime.cli.execute import execute
from chronos_runtime.cli.load import BUILT_IN_ONLY, load_app
from chronos_runtime.cli.options import AppPath, ConfigFile, Dsn
from chronos_runtime.cli.orders import Orders
from chronos_runtime.cli.parent import run_family
from chronos_runtime.cli.settings import DSN, load_settings
from chronos_runtime.cli.signals import Signals
from chronos_runtime.cli.worker import ready_database, run_worker
from chronos_runtime.errors import ConfigError
from chronos_runtime.logs import LogFormat, LogLevel, setup_logs
from chronos_runtime.metrics import Metrics
from chronos_runtime.processors.builtin import Builtins
from chronos_runtime.store.postgres import PostgresStore

PROCESSES_MAX = 256

_FORMATS: tuple[LogFormat, ...] = get_args(LogFormat)
_LEVELS: tuple[LogLevel, ...] = get_args(LogLevel)
T = TypeVar("T", bound=str)

_log = logging.getLogger(__name__)


def run(
    *,
    app: Annotated[
        str | None,
        typer.Argument(
            metavar="MODULE:APP",
            help=f"Where the Chronos app is, for example shop.jobs:app; {BUILT_IN_ONLY} for none.",
            show_default=False,
        ),
    ] = None,
    module: AppPath = None,
    dsn: Dsn = None,
    config: ConfigFile = None,
    processes: Annotated[
        int, typer.Option(min=1, max=PROCESSES_MAX, envvar="CHRONOS_PROCESSES", help="How many.")
    ] = 1,
    topics: Annotated[
        str | None, typer.Option(metavar="A,B", help="Serve only these.", show_default=False)
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option(help="Handlers at once, per process.", show_default="100")
    ] = None,
    drain_s: Annotated[
        float | None, typer.Option(help="For how long to drain.", show_default="30")
    ] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(help="/metrics; one port up per process; 0: any.", show_default="9464"),
    ] = None,
    should_migrate: Annotated[
        bool, typer.Option("--migrate", help="Bring the schema up to date first.")
    ] = False,
    log_format: Annotated[
        str, typer.Option(envvar="CHRONOS_LOG_FORMAT", help=f"One of {', '.join(_FORMATS)}.")
    ] = "auto",
    log_level: Annotated[
        str, typer.Option(envvar="CHRONOS_LOG_LEVEL", help=f"One of {', '.join(_LEVELS)}.")
    ] = "info",
) -> None:
    """Run a worker until SIGINT or SIGTERM, then drain; a second signal stops at once.

    With - in the place of an app it serves the built-in kinds alone, for work written in SQL.
    Without a DSN it starts an embedded Postgres, for development.
    """
    if (app is None) == (module is None):
        raise ConfigError(
            "name the app once: chronos-runtime run module:app"
            f" ({BUILT_IN_ONLY} for none, to serve the built-in kinds alone)"
        )
    path = str(app or module)
    flags = {
        DSN: dsn,
        "topics": topics,
        "executor.concurrency": concurrency,
        "executor.drain_s": drain_s,
        "exporter.port": metrics_port,
    }
    settings = load_settings(flags, config, os.environ).config
    format = _one_of(_FORMATS, log_format, "--log-format")
    level = _one_of(_LEVELS, log_level, "--log-level")
    setup_logs(format, level)
    chronos = load_app(path)
    # Refuse here what every process of a family would stumble on.
    Builtins(settings, PostgresStore(settings.database).functions, Metrics())

    async def command() -> None:
        with Signals(asked=_stopped_early) as signals:
            async with ready_database(
                settings, should_migrate=should_migrate, stop=signals.stop
            ) as ready:
                if signals.stop.is_set():
                    return
                if processes == 1:
                    await run_worker(chronos, ready, signals)
                else:
                    orders = Orders(app=path, config=ready, log_format=format, log_level=level)
                    await run_family(orders, signals, processes)

    execute(command)


def _stopped_early(reason: str) -> None:
    _log.info("%s: nothing was running yet", reason)


def _one_of(choices: tuple[T, ...], value: str, flag: str) -> T:
    for choice in choices:
        if choice == value:
            return choice
    raise ConfigError(f"{flag}: {value!r} is not one of {', '.join(choices)}")
