"""`chronos-runtime topics`: how deep they are, and their gates."""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.text import Text

from chronos_runtime.cli.database import open_client
from chronos_runtime.cli.execute import execute
from chronos_runtime.cli.options import ConfigFile, Dsn, Json
from chronos_runtime.cli.output import (
    Cell,
    Column,
    clean,
    duration,
    print_json,
    print_line,
    print_table,
    say,
)
from chronos_runtime.client import COUNT_BOUND, Client
from chronos_runtime.errors import InputError
from chronos_runtime.job import TOPIC_ALL, LiveState
from chronos_runtime.store import Gate, HistoryCounts, TopicDepth

topics = typer.Typer(no_args_is_help=True, help="Look at topics, pause and resume them.")

Names = Annotated[
    list[str] | None, typer.Argument(metavar="TOPIC…", help="The topics.", show_default=False)
]
All = Annotated[bool, typer.Option("--all", help="The gate of all topics at once.")]

_COLUMNS = (
    Column("TOPIC", is_whole=False),
    Column("GATE"),
    Column("READY", align="right"),
    Column("OLDEST", align="right"),
    Column("SCHEDULED", align="right"),
    Column("RUNNING", align="right"),
)


class TopicRow(msgspec.Struct, kw_only=True):
    """One topic: its gate and its live jobs."""

    topic: str
    paused: bool = False
    ready: int = 0
    scheduled: int = 0
    running: int = 0
    at_least: list[LiveState] = []
    """The states counted only up to a bound."""
    oldest_s: float | None = None
    """For how long the oldest ready job has been due."""


@topics.command("list")
def list_topics(*, dsn: Dsn = None, config: ConfigFile = None, json: Json = False) -> None:
    """List the topics that have live jobs or a gate, and how much there is to do."""

    async def command() -> None:
        async with open_client(dsn, config) as client:
            counts, gates = await client.counts(), await client.gates()
        rows = _rows(counts.live, gates)
        all_paused = any(gate.paused for gate in gates if gate.topic == TOPIC_ALL)
        if json:
            print_json({"all_paused": all_paused, "topics": rows, "history": counts.history})
        else:
            _print(rows, counts.history, is_all_paused=all_paused)

    execute(command)


@topics.command("pause")
def pause_topics(
    *, names: Names = None, is_all: All = False, dsn: Dsn = None, config: ConfigFile = None
) -> None:
    """Claim nothing more of a topic, in any process; what runs may finish."""
    execute(_set_gates, Client.pause, "paused", _gates(names, is_all=is_all), dsn, config)


@topics.command("resume")
def resume_topics(
    *, names: Names = None, is_all: All = False, dsn: Dsn = None, config: ConfigFile = None
) -> None:
    """Open the gate of a topic again."""
    execute(_set_gates, Client.resume, "resumed", _gates(names, is_all=is_all), dsn, config)


def _gates(names: list[str] | None, *, is_all: bool) -> list[str]:
    if bool(names) == is_all:
        raise InputError("topic: name the topics, or give --all")
    return names or [TOPIC_ALL]


async def _set_gates(
    turn: Callable[[Client, str], Awaitable[None]],
    word: str,
    gates: list[str],
    dsn: str | None,
    file: Path | None,
) -> None:
    async with open_client(dsn, file) as client:
        for gate in gates:
            await turn(client, gate)
            print_line(f"{'all topics' if gate == TOPIC_ALL else clean(gate)} {word}")


def _rows(live: Sequence[TopicDepth], gates: Sequence[Gate]) -> list[TopicRow]:
    rows = {gate.topic: TopicRow(topic=gate.topic, paused=gate.paused) for gate in gates}
    rows.pop(TOPIC_ALL, None)
    for depth in live:
        row = rows.setdefault(depth.topic, TopicRow(topic=depth.topic))
        setattr(row, depth.state, depth.jobs)
        if depth.is_bound:
            row.at_least = [*row.at_least, depth.state]
        if depth.state == "ready":
            row.oldest_s = depth.oldest_s
    return [rows[topic] for topic in sorted(rows)]


def _print(rows: Sequence[TopicRow], history: HistoryCounts, *, is_all_paused: bool) -> None:
    if is_all_paused:
        say(Text("all topics are paused: chronos-runtime topics resume --all", style="bold red"))
    if rows:
        print_table(_COLUMNS, [_cells(row) for row in rows])
    else:
        say("no live jobs and no gates")
    dead, failed, cancelled = (
        f"{COUNT_BOUND:,}+" if count > COUNT_BOUND else f"{count:,}"
        for count in (history.dead, history.failed, history.cancelled)
    )
    print_line(
        f"history: {dead} dead, {failed} failed, {cancelled} cancelled,"
        f" about {history.estimate:,} in all"
    )


def _cells(row: TopicRow) -> tuple[Cell, ...]:
    def count(state: LiveState) -> str:
        jobs = int(getattr(row, state))
        return f"{jobs:,}{'+' if state in row.at_least else ''}"

    return (
        clean(row.topic),
        Text("paused", style="bold red") if row.paused else "open",
        count("ready"),
        "" if row.oldest_s is None else duration(max(row.oldest_s, 0)),
        count("scheduled"),
        count("running"),
    )
