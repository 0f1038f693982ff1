"""`python -m benchmarks <name>`: figures as a table, or as one JSON object with --json."""

import json

import typer
from rich.console import Console
from rich.table import Table

from benchmarks import drain as drain_benchmark

app = typer.Typer(add_completion=False, no_args_is_help=True, help=__doc__)


@app.callback()
def _several_commands() -> None:
    """Keep `drain` a command of its own while it is the only one."""


@app.command()
def drain(
    jobs: int = typer.Option(100_000, help="Jobs to drain in each round."),
    backlog: int = typer.Option(0, help="Measure while so many more wait, against 10,000."),
    rounds: int = typer.Option(3, help="Rounds; the median of each figure is printed."),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object."),
) -> None:
    """Drain no-op jobs with one process, beside the same statements on bare asyncpg."""
    figures = drain_benchmark.measure(jobs=jobs, backlog=backlog, rounds=rounds)
    _show(figures, as_json=as_json)


def _show(figures: dict[str, object], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(figures))
        return
    table = Table("figure", "value")
    for name, value in figures.items():
        table.add_row(name, f"{value:,.4g}" if isinstance(value, float) else str(value))
    Console().print(table)


if __name__ == "__main__":
    app()
