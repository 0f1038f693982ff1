"""Measure the runtime beside something that says what the figure is worth.

Each run prints a table and keeps it, with its charts and what it was measured on, in
benchmarks/results. A speed means something only beside another speed of the same run.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Annotated, Protocol

import anyio
import msgspec
import typer
from rich.console import Console
from rich.table import Table

from benchmarks import (
    backlog,
    drain,
    enqueue,
    idle,
    latency,
    mixed,
    peers,
    pinned,
    readme,
    recovery,
    scale,
    schedules,
)
from benchmarks.facts import read_facts
from benchmarks.guard import Verdict, judge, read_floors
from benchmarks.report import Kept, Report, keep, show, spoken
from benchmarks.server import Server, embedded_server, fill_log
from benchmarks.steps import Steps, shown_steps
from chronos_runtime.garbage import collect_less

Measure = Callable[[Server, Steps], Awaitable[Report]]


class Sized(Protocol):
    """A benchmark, before its size is chosen."""

    def __call__(self, server: Server, steps: Steps, /, *, quick: bool) -> Awaitable[Report]:
        """Measure."""


Quick = Annotated[bool, typer.Option("--quick", help="Small sizes: to look, not to cite.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Rounds = Annotated[int | None, typer.Option(help="Rounds; medians are printed.", min=1)]
Jobs = Annotated[int | None, typer.Option(help="Jobs in each round.", min=1_000)]

# In the order of the README.
SUITE: dict[str, Sized] = {
    "drain": drain.measure,
    "peers": peers.measure,
    "backlog": backlog.measure,
    "pinned": pinned.measure,
    "latency": latency.measure,
    "enqueue": enqueue.measure,
    "scale": scale.measure,
    "mixed": mixed.measure,
    "idle": idle.measure,
    "recovery": recovery.measure,
    "schedules": schedules.measure,
}

app = typer.Typer(add_completion=False, no_args_is_help=True, help=__doc__)


@app.command("drain")
def run_drain(
    quick: Quick = False, as_json: AsJson = False, jobs: Jobs = None, rounds: Rounds = None
) -> None:
    """How fast one process empties a queue, beside the same statements on bare asyncpg."""
    _run(partial(drain.measure, quick=quick, jobs=jobs, rounds=rounds), quick, as_json)


@app.command("peers")
def run_peers(
    quick: Quick = False,
    as_json: AsJson = False,
    only: Annotated[list[str] | None, typer.Option(help="Only this peer; repeat.")] = None,
) -> None:
    """The same work done by other job queues on Postgres, each at its best settings."""
    _run(partial(peers.measure, quick=quick, only=only), quick, as_json)


@app.command("backlog")
def run_backlog(
    quick: Quick = False,
    as_json: AsJson = False,
    rounds: Rounds = None,
    deep: Annotated[bool, typer.Option("--deep", help="Ten million jobs too.")] = False,
) -> None:
    """What a job costs while ten thousand, or a million, more are waiting."""
    _run(partial(backlog.measure, quick=quick, deep=deep, rounds=rounds), quick, as_json)


@app.command("pinned")
def run_pinned(quick: Quick = False, as_json: AsJson = False, jobs: Jobs = None) -> None:
    """Whether it stays fast while an old snapshot keeps vacuum from its work."""
    _run(partial(pinned.measure, quick=quick, jobs=jobs), quick, as_json)


@app.command("latency")
def run_latency(quick: Quick = False, as_json: AsJson = False) -> None:
    """From the call that enqueues to the handler's first line, idle and at half load."""
    _run(partial(latency.measure, quick=quick), quick, as_json)


@app.command("enqueue")
def run_enqueue(quick: Quick = False, as_json: AsJson = False, rounds: Rounds = None) -> None:
    """Enqueueing one by one, at once and in bulk, beside a bare insert and a bare COPY."""
    _run(partial(enqueue.measure, quick=quick, rounds=rounds), quick, as_json)


@app.command("scale")
def run_scale(quick: Quick = False, as_json: AsJson = False, rounds: Rounds = None) -> None:
    """One, two, four and eight processes on one database."""
    _run(partial(scale.measure, quick=quick, rounds=rounds), quick, as_json)


@app.command("mixed")
def run_mixed(quick: Quick = False, as_json: AsJson = False) -> None:
    """Minutes of everything at once: topics, priorities, failures, scheduled jobs."""
    _run(partial(mixed.measure, quick=quick), quick, as_json)


@app.command("idle")
def run_idle(quick: Quick = False, as_json: AsJson = False) -> None:
    """What a process costs that has nothing to do."""
    _run(partial(idle.measure, quick=quick), quick, as_json)


@app.command("recovery")
def run_recovery(quick: Quick = False, as_json: AsJson = False) -> None:
    """How soon the jobs of a killed worker run again."""
    _run(partial(recovery.measure, quick=quick), quick, as_json)


@app.command("schedules")
def run_schedules(quick: Quick = False, as_json: AsJson = False) -> None:
    """How late a fire is, and what a pass costs with a hundred thousand schedules."""
    _run(partial(schedules.measure, quick=quick), quick, as_json)


@app.command("guard")
def run_guard() -> None:
    """Hold quick runs against benchmarks/floors.toml; 1 when a figure falls short."""
    verdicts: list[Verdict] = []
    for name, bounds in read_floors().items():
        kept = _measure_and_keep(partial(SUITE[name], quick=True), quick=True)
        verdicts += judge(kept.report, bounds)
    table = Table("benchmark", "figure", "seen", "floor", "")
    for one in verdicts:
        mark = "ok" if one.holds else "[bold red]falls short[/]"
        table.add_row(one.benchmark, one.figure, spoken(one.value), str(one.bound), mark)
    Console().print(table)
    raise typer.Exit(0 if all(one.holds for one in verdicts) else 1)


@app.command("numbers")
def write_numbers() -> None:
    """Write the README's section "Numbers" from benchmarks/results."""
    readme.write()


def _run(measure: Measure, quick: bool, as_json: bool) -> None:
    kept = _measure_and_keep(measure, quick)
    if as_json:
        print(msgspec.json.encode(kept).decode())
    else:
        show(kept, Console())


def _measure_and_keep(measure: Measure, quick: bool) -> Kept:
    collect_less()  # As `chronos-runtime run` does.
    with embedded_server() as server, shown_steps() as steps:
        kept = anyio.run(
            _measure, measure, server, steps, quick, backend_options={"use_uvloop": True}
        )
    keep(kept)
    return kept


async def _measure(measure: Measure, server: Server, steps: Steps, quick: bool) -> Kept:
    facts = await read_facts(server.dsn)
    await fill_log(server)
    return Kept(await measure(server, steps), facts, quick)


if __name__ == "__main__":
    app()
