"""`chronos-runtime schedules`: when jobs are to be enqueued, and what became of it."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Annotated, get_args

import typer

from chronos_runtime.cli.arguments import checked_choices, instant
from chronos_runtime.cli.database import open_client
from chronos_runtime.cli.execute import execute
from chronos_runtime.cli.options import ConfigFile, Dsn, Json
from chronos_runtime.cli.output import clean, print_json, print_line, say
from chronos_runtime.cli.schedule_edit import Name, add_schedule, edit_schedule
from chronos_runtime.cli.schedule_options import (
    Cron,
    Every,
    FoldRule,
    GapRule,
    Tz,
    read_options,
)
from chronos_runtime.cli.schedule_text import (
    after_of,
    as_document,
    as_fire_document,
    print_fires,
    print_page,
    print_previews,
    print_schedule,
)
from chronos_runtime.client import Client
from chronos_runtime.definitions import change_definition
from chronos_runtime.errors import InputError
from chronos_runtime.fires import timetable_of
from chronos_runtime.processors.wake_payload import wake_rules
from chronos_runtime.schedule import Definition, Status
from chronos_runtime.schedules import PAGE_MAX
from chronos_runtime.timetable import PREVIEW_MAX, Preview, Timetable

schedules = typer.Typer(no_args_is_help=True, help="Add schedules, look at them, change them.")
schedules.command("add")(add_schedule)
schedules.command("edit")(edit_schedule)

STATUSES: tuple[Status, ...] = get_args(Status)
Names = Annotated[list[str], typer.Argument(metavar="NAME…", help="The schedules' names.")]
Statuses = Annotated[
    list[str] | None,
    typer.Option(
        "--status",
        metavar="STATUS",
        help=f"Only in this status; can be repeated. One of {', '.join(STATUSES)}.",
        show_default=False,
    ),
]
After = Annotated[
    str | None,
    typer.Option(metavar="NAME/ID", help="Only after this one: the next page.", show_default=False),
]
Limit = Annotated[int, typer.Option(min=1, max=PAGE_MAX, help="At most so many.")]


@schedules.command("list")
def list_schedules(
    *,
    statuses: Statuses = None,
    after: After = None,
    limit: Limit = 50,
    dsn: Dsn = None,
    config: ConfigFile = None,
    json: Json = False,
) -> None:
    """List schedules, by name."""

    async def command() -> None:
        async with open_client(dsn, config) as client:
            page = await client.schedules.list(
                statuses=checked_choices(statuses, STATUSES, "status"),
                after=after_of(after),
                limit=limit,
            )
        print_page(page, "schedules", limit=limit, is_json=json)

    execute(command)


@schedules.command("show")
def show_schedule(
    *, name: Name, dsn: Dsn = None, config: ConfigFile = None, json: Json = False
) -> None:
    """Show one schedule: its rules, its payload and where it stands."""

    async def command() -> None:
        async with open_client(dsn, config) as client:
            schedule = await client.schedules.get(name)
        if json:
            print_json(as_document(schedule))
        else:
            print_schedule(schedule)

    execute(command)


@schedules.command("pause")
def pause_schedules(*, names: Names, dsn: Dsn = None, config: ConfigFile = None) -> None:
    """Fire nothing more until they are resumed; what has fired goes on."""
    _each(names, "paused", lambda client, name: client.schedules.pause(name), dsn, config)


@schedules.command("resume")
def resume_schedules(*, names: Names, dsn: Dsn = None, config: ConfigFile = None) -> None:
    """Fire again, from the next occurrence on; a single instant that has passed fires late."""
    _each(names, "resumed", lambda client, name: client.schedules.resume(name), dsn, config)


@schedules.command("remove")
def remove_schedules(*, names: Names, dsn: Dsn = None, config: ConfigFile = None) -> None:
    """Forget schedules; the jobs they fired stay. One made by code comes back with its code."""
    _each(names, "removed", lambda client, name: client.schedules.remove(name), dsn, config)


def _each(
    names: list[str],
    word: str,
    act: Callable[[Client, str], Awaitable[None]],
    dsn: Dsn,
    config: ConfigFile,
) -> None:
    async def command() -> None:
        async with open_client(dsn, config) as client:
            for name in names:
                await act(client, name)
                print_line(f"{clean(name)} {word}")

    execute(command)


@schedules.command("run-now")
def run_schedule(
    *, name: Name, dsn: Dsn = None, config: ConfigFile = None, json: Json = False
) -> None:
    """Fire once more, now, whatever timetable, pause and overlap say."""

    async def command() -> None:
        async with open_client(dsn, config) as client:
            fire = await client.schedules.run_now(name)
        if json:
            print_json(fire)
            return
        print_line(f"{fire.id} enqueued: a fire of {clean(name)}")
        if fire.overlaps:
            say("another fire of it still lives")

    execute(command)


@schedules.command("fires")
def list_fires(
    *,
    name: Name,
    limit: Limit = 20,
    dsn: Dsn = None,
    config: ConfigFile = None,
    json: Json = False,
) -> None:
    """List the fires of a schedule, newest occurrence first."""

    async def command() -> None:
        async with open_client(dsn, config) as client:
            fires = await client.schedules.fires(name, limit)
        if json:
            print_json({"fires": [as_fire_document(fire) for fire in fires]})
        else:
            print_fires(fires)

    execute(command)


@schedules.command("preview")
def preview_schedule(
    *,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="The schedule.", show_default=False)
    ] = None,
    cron: Cron = None,
    tz: Tz = None,
    every: Every = None,
    gap: GapRule = None,
    fold: FoldRule = None,
    count: Annotated[int, typer.Option(min=1, max=PREVIEW_MAX, help="How many.")] = 10,
    since: Annotated[
        str | None, typer.Option("--from", metavar="ISO", help="After this.", show_default="now")
    ] = None,
    dsn: Dsn = None,
    config: ConfigFile = None,
    json: Json = False,
) -> None:
    """Show the next occurrences, in UTC and on the wall, and where a clock is put on or back.

    Of a schedule, or of a bare --cron or --every, which needs no database.
    """
    options = read_options(cron=cron, tz=tz, every=every, gap=gap, fold=fold)
    start = None if since is None else instant(since, "from")
    if (name is None) == (not options):
        raise InputError("name: name a schedule, or give --cron or --every instead")

    async def read(name: str) -> tuple[Timetable, Sequence[Preview]]:
        async with open_client(dsn, config) as client:
            table = timetable_of(await client.schedules.get(name))
            if start is not None:
                return table, table.preview(start, count)
            return table, await client.schedules.preview(name, count)

    previews: Sequence[Preview]
    if name is None:
        definition = change_definition("preview", Definition(kind="any"), wake_rules(), **options)
        table = timetable_of(definition)
        previews = table.preview(start or datetime.now(UTC), count)
    else:
        table, previews = execute(read, name)
    if json:
        print_json({"tz": table.tz, "occurrences": previews})
    else:
        print_previews(previews, table.tz)
