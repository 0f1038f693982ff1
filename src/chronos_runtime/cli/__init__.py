"""The command line: flags → config → one call."""

from typing import Annotated

import typer

from chronos_runtime.cli.alarms import alarms
from chronos_runtime.cli.child import child
from chronos_runtime.cli.demo import demo
from chronos_runtime.cli.enqueue import enqueue
from chronos_runtime.cli.execute import exit_with
from chronos_runtime.cli.functions import functions
from chronos_runtime.cli.jobs import jobs
from chronos_runtime.cli.migrate import migrate
from chronos_runtime.cli.orders import COMMAND
from chronos_runtime.cli.output import print_line
from chronos_runtime.cli.run import run
from chronos_runtime.cli.schedules import schedules
from chronos_runtime.cli.show_config import config
from chronos_runtime.cli.topics import topics
from chronos_runtime.version import VERSION

# Typer's own tracebacks show local variables, and among them passwords.
cli = typer.Typer(
    name="chronos-runtime",
    help="Durable background jobs, schedules and alarms on nothing but Postgres.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
cli.command()(run)
cli.command(COMMAND, hidden=True)(child)
cli.command()(enqueue)
cli.command()(migrate)
cli.add_typer(jobs, name="jobs")
cli.add_typer(topics, name="topics")
cli.add_typer(schedules, name="schedules")
cli.add_typer(alarms, name="alarms")
cli.add_typer(functions, name="functions")
cli.command()(config)
cli.command()(demo)


def main() -> None:
    """Run the program; the entry point of `chronos-runtime`."""
    exit_with(cli)


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        print_line(f"chronos-runtime {VERSION}")
        raise typer.Exit


@cli.callback()
def _options(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print it.")
    ] = False,
) -> None:
    pass
