"""Measure the runtime beside something that says what the figure is worth.

Each run prints a table and keeps it, with its charts and what it was measured on, in
benchmarks/results. A speed means something only beside another speed of the same run.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Annotated

import anyio
import msgspec
import typer
from rich.console import Console

from benchmarks import drain as drain_benchmark
from benchmarks.facts import read_facts
from benchmarks.report import Kept, Report, keep, show
from benchmarks.server import Server, embedded_server
from benchmarks.steps import Steps, shown_steps
from chronos_runtime.garbage import collect_less

Measure = Callable[[Server, Steps], Awaitable[Report]]
Quick = Annotated[bool, typer.Option("--quick", help="Small sizes: to look, not to cite.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]

app = typer.Typer(add_completion=False, no_args_is_help=True, help=__doc__)


@app.callback()
def _several_commands() -> None:
    """Keep `drain` a command of its own while it is the only one."""


@app.command()
def drain(
    quick: Quick = False,
    as_json: AsJson = False,
    jobs: Annotated[int | None, typer.Option(help="Jobs to drain in each round.")] = None,
    rounds: Annotated[int | None, typer.Option(help="Rounds; medians are printed.")] = None,
) -> None:
    """How fast one process empties a queue, beside the same statements on bare asyncpg."""
    _run(partial(drain_benchmark.measure, quick=quick, jobs=jobs, rounds=rounds), quick, as_json)


def _run(measure: Measure, quick: bool, as_json: bool) -> None:
    collect_less()  # As `chronos-runtime run` does.
    with embedded_server() as server, shown_steps() as steps:
        kept = anyio.run(
            _measure, measure, server, steps, quick, backend_options={"use_uvloop": True}
        )
    keep(kept)
    if as_json:
        print(msgspec.json.encode(kept).decode())
    else:
        show(kept, Console())


async def _measure(measure: Measure, server: Server, steps: Steps, quick: bool) -> Kept:
    facts = await read_facts(server.dsn)
    return Kept(await measure(server, steps), facts, quick)


if __name__ == "__main__":
    app()
