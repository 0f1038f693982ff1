"""`chronos-runtime alarms`: wake a URL at an instant, or again and again."""

from typing import Annotated, cast

import typer

from chronos_runtime.alarms import MAX_FAILURES, AlarmTiming
from chronos_runtime.cli.arguments import checked_choices, document, instant, span
from chronos_runtime.cli.database import open_client
from chronos_runtime.cli.execute import execute
from chronos_runtime.cli.options import ConfigFile, Dsn, Json
from chronos_runtime.cli.output import clean, print_json, print_line
from chronos_runtime.cli.schedule_edit import print_change
from chronos_runtime.cli.schedule_options import (
    At,
    Cron,
    Ends,
    Every,
    FoldRule,
    GapRule,
    Payload,
    Starts,
    Tz,
    read_options,
)
from chronos_runtime.cli.schedule_text import (
    after_of,
    as_document,
    as_fire_document,
    print_fires,
    print_page,
    print_schedule,
)
from chronos_runtime.cli.schedules import STATUSES, After, Limit, Statuses
from chronos_runtime.errors import InputError

alarms = typer.Typer(no_args_is_help=True, help="Wake URLs: set alarms, put them off.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The alarm's name.")]
Names = Annotated[list[str], typer.Argument(metavar="NAME…", help="The alarms' names.")]


@alarms.command("set")
def set_alarm(
    *,
    url: Annotated[str, typer.Argument(metavar="URL", help="What to wake.")],
    name: Annotated[
        str | None, typer.Option(help="What to call it.", show_default="its id")
    ] = None,
    at: At = None,
    cron: Cron = None,
    tz: Tz = None,
    every: Every = None,
    payload: Payload = None,
    secret: Annotated[
        str | None,
        typer.Option(help="Sign by the wake.secrets of this name.", show_default=False),
    ] = None,
    headers: Annotated[
        list[str] | None,
        typer.Option(
            "--header", metavar="NAME:VALUE", help="Send it too; repeatable.", show_default=False
        ),
    ] = None,
    max_failures: Annotated[int, typer.Option(help="Failed after so many.")] = MAX_FAILURES,
    starts: Starts = None,
    ends: Ends = None,
    gap: GapRule = None,
    fold: FoldRule = None,
    dsn: Dsn = None,
    config: ConfigFile = None,
    json: Json = False,
) -> None:
    """Set an alarm: POST to the URL then, and try again until it is heard."""
    options = read_options(
        at=at, cron=cron, tz=tz, every=every, starts=starts, ends=ends, gap=gap, fold=fold
    )
    timing = cast(AlarmTiming, options)
    body = None if payload is None else document(payload)
    sent = _headers(headers or [])

    async def command() -> None:
        async with open_client(dsn, config) as client:
            alarm = await client.alarms.set(
                url,
                body,
                name=name,
                max_failures=max_failures,
                secret=secret,
                headers=sent,
                **timing,
            )
        print_change(alarm, "set", is_json=json)

    execute(command)


def _headers(lines: list[str]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon:
            raise InputError(f"header: {line!r} is not NAME:VALUE")
        headers[name.strip()] = value.strip()
    return headers


@alarms.command("list")
def list_alarms(
    *,
    statuses: Statuses = None,
    after: After = None,
    limit: Limit = 50,
    dsn: Dsn = None,
    config: ConfigFile = None,
    json: Json = False,
) -> None:
    """List alarms, by name; also those that have ended."""

    async def command() -> None:
        async with open_client(dsn, config) as client:
            page = await client.alarms.list(
                statuses=checked_choices(statuses, STATUSES, "status"),
                after=after_of(after),
                limit=limit,
            )
        print_page(page, "alarms", limit=limit, is_json=json)

    execute(command)


@alarms.command("show")
def show_alarm(
    *, name: Name, dsn: Dsn = None, config: ConfigFile = None, json: Json = False
) -> None:
    """Show one alarm: the active one of that name, or else the last."""

    async def command() -> None:
        async with open_client(dsn, config) as client:
            alarm = await client.alarms.get(name)
        if json:
            print_json(as_document(alarm))
        else:
            print_schedule(alarm)

    execute(command)


@alarms.command("cancel")
def cancel_alarms(*, names: Names, dsn: Dsn = None, config: ConfigFile = None) -> None:
    """End alarms; they are kept for audit. A delivery under way may still arrive."""

    async def command() -> None:
        async with open_client(dsn, config) as client:
            for name in names:
                await client.alarms.cancel(name)
                print_line(f"{clean(name)} cancelled")

    execute(command)


@alarms.command("snooze")
def snooze_alarm(
    *,
    name: Name,
    wait: Annotated[
        str | None,
        typer.Option("--for", metavar="SPAN", help="So long: 10m, say.", show_default=False),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(metavar="ISO", help="Until 2026-12-24T09:00+01:00, say.", show_default=False),
    ] = None,
    dsn: Dsn = None,
    config: ConfigFile = None,
    json: Json = False,
) -> None:
    """Put off the next fire, or the one that waits to be tried again; a series goes on after."""
    for_s = None if wait is None else span(wait, "for_s")
    end = None if until is None else instant(until, "until")

    async def command() -> None:
        async with open_client(dsn, config) as client:
            await client.alarms.snooze(name, until=end, for_s=for_s)
            alarm = await client.alarms.get(name)
        print_change(alarm, "snoozed", is_json=json)

    execute(command)


@alarms.command("fires")
def list_alarm_fires(
    *,
    name: Name,
    limit: Limit = 20,
    dsn: Dsn = None,
    config: ConfigFile = None,
    json: Json = False,
) -> None:
    """List the fires of an alarm, newest occurrence first."""

    async def command() -> None:
        async with open_client(dsn, config) as client:
            fires = await client.alarms.fires(name, limit)
        if json:
            print_json({"fires": [as_fire_document(fire) for fire in fires]})
        else:
            print_fires(fires)

    execute(command)
