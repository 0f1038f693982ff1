"""`chronos-runtime schedules add` and `edit`: from what is typed to a schedule."""

from typing import Annotated

import msgspec
import typer

from chronos_runtime.cli.arguments import document
from chronos_runtime.cli.database import open_client
from chronos_runtime.cli.execute import execute
from chronos_runtime.cli.load import load_app
from chronos_runtime.cli.options import AppPath, ConfigFile, Dsn, Json
from chronos_runtime.cli.output import clean, print_json, print_line
from chronos_runtime.cli.schedule_options import (
    At,
    CatchUpMax,
    CatchUpRule,
    Cron,
    Ends,
    Every,
    ExpectUrl,
    ExpectWithin,
    FoldRule,
    GapRule,
    Jitter,
    MaxAttempts,
    OverlapRule,
    Payload,
    Priority,
    Starts,
    Timeout,
    Topic,
    Tz,
    read_options,
)
from chronos_runtime.cli.schedule_text import as_document, next_text, status_text, timing_text
from chronos_runtime.errors import InputError
from chronos_runtime.schedule import Schedule

Name = Annotated[str, typer.Argument(metavar="NAME", help="The schedule's name.")]


def add_schedule(
    *,
    name: Name,
    kind: Annotated[str, typer.Option(metavar="KIND", help="Which handler.")],
    cron: Cron = None,
    tz: Tz = None,
    every: Every = None,
    at: At = None,
    payload: Payload = None,
    starts: Starts = None,
    ends: Ends = None,
    gap: GapRule = None,
    fold: FoldRule = None,
    jitter: Jitter = None,
    catch_up: CatchUpRule = None,
    catch_up_max: CatchUpMax = None,
    overlap: OverlapRule = None,
    topic: Topic = None,
    priority: Priority = None,
    max_attempts: MaxAttempts = None,
    timeout: Timeout = None,
    expect_success_within: ExpectWithin = None,
    expect_url: ExpectUrl = None,
    is_paused: Annotated[
        bool, typer.Option("--paused", help="It fires nothing before it is resumed.")
    ] = False,
    module: AppPath = None,
    dsn: Dsn = None,
    config: ConfigFile = None,
    json: Json = False,
) -> None:
    """Add a schedule. With --module, kind and payload are checked against its handlers."""
    options = read_options(
        cron=cron,
        tz=tz,
        every=every,
        at=at,
        starts=starts,
        ends=ends,
        gap=gap,
        fold=fold,
        jitter=jitter,
        catch_up=catch_up,
        catch_up_max=catch_up_max,
        overlap=overlap,
        topic=topic,
        priority=priority,
        max_attempts=max_attempts,
        timeout=timeout,
        expect_success_within=expect_success_within,
        expect_url=expect_url,
    )
    body = None if payload is None else document(payload)
    app = None if module is None else load_app(module)

    async def command() -> None:
        async with open_client(dsn, config, app) as client:
            added = await client.schedules.add(name, kind, body, paused=is_paused, **options)
        print_change(added, "added", is_json=json)

    execute(command)


def edit_schedule(
    *,
    name: Name,
    cron: Cron = None,
    tz: Tz = None,
    every: Every = None,
    at: At = None,
    payload: Payload = None,
    starts: Starts = None,
    ends: Ends = None,
    gap: GapRule = None,
    fold: FoldRule = None,
    jitter: Jitter = None,
    catch_up: CatchUpRule = None,
    catch_up_max: CatchUpMax = None,
    overlap: OverlapRule = None,
    topic: Topic = None,
    priority: Priority = None,
    max_attempts: MaxAttempts = None,
    timeout: Timeout = None,
    expect_success_within: ExpectWithin = None,
    expect_url: ExpectUrl = None,
    module: AppPath = None,
    dsn: Dsn = None,
    config: ConfigFile = None,
    json: Json = False,
) -> None:
    """Change what is given and nothing else; `none` takes back what can be left out.

    A new timing counts from now. A schedule that code made is the code's again when that changes.
    """
    options = read_options(
        cron=cron,
        tz=tz,
        every=every,
        at=at,
        starts=starts,
        ends=ends,
        gap=gap,
        fold=fold,
        jitter=jitter,
        catch_up=catch_up,
        catch_up_max=catch_up_max,
        overlap=overlap,
        topic=topic,
        priority=priority,
        max_attempts=max_attempts,
        timeout=timeout,
        expect_success_within=expect_success_within,
        expect_url=expect_url,
    )
    if not options and payload is None:
        raise InputError("options: give at least one to change, such as --cron")
    body = msgspec.UNSET if payload is None else document(payload)
    app = None if module is None else load_app(module)

    async def command() -> None:
        async with open_client(dsn, config, app) as client:
            edited = await client.schedules.edit(name, payload=body, **options)
        print_change(edited, "edited", is_json=json)

    execute(command)


def print_change(schedule: Schedule, word: str, *, is_json: bool) -> None:
    """What a schedule or an alarm is now, in a line or as a document."""
    if is_json:
        print_json(as_document(schedule))
        return
    coming = next_text(schedule)
    then = f"next {coming}" if coming else status_text(schedule)
    print_line(f"{clean(schedule.name)} {word}: {timing_text(schedule)}, {then}")
