"""`chronos-runtime functions`: which SQL functions tasks may call."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from chronos_runtime.checks import checked_timeout
from chronos_runtime.cli.arguments import span, span_text
from chronos_runtime.cli.database import open_store
from chronos_runtime.cli.execute import execute
from chronos_runtime.cli.options import ConfigFile, Dsn, Json
from chronos_runtime.cli.output import (
    Cell,
    Column,
    clean,
    print_json,
    print_line,
    print_table,
    say,
)
from chronos_runtime.errors import InputError
from chronos_runtime.function_name import FunctionName, checked_schema
from chronos_runtime.store.postgres_functions import AllowedFunction

functions = typer.Typer(
    no_args_is_help=True, help="Say which SQL functions tasks may call; at first, none."
)

Names = Annotated[
    list[str],
    typer.Argument(
        metavar="SCHEMA.FUNCTION…", help="The functions; a SCHEMA alone: all that are in it."
    ),
]

_COLUMNS = (
    Column("FUNCTION", is_whole=False),
    Column("ROLE", is_whole=False),
    Column("TIMEOUT", align="right"),
    Column("COVERS", align="right"),
)


@functions.command("allow")
def allow_functions(
    *,
    names: Names,
    role: Annotated[
        str | None,
        typer.Option(help="Call them as this role (set role).", show_default=False),
    ] = None,
    timeout: Annotated[
        str | None,
        typer.Option(
            metavar="SPAN", help="How long a call may take: 5s, 2m.", show_default="[functions]"
        ),
    ] = None,
    dsn: Dsn = None,
    config: ConfigFile = None,
) -> None:
    """Let tasks call functions. Said again, it takes the place of what was said before."""
    entries = [_entry(name) for name in names]
    timeout_s = None if timeout is None else checked_timeout(span(timeout, "timeout"))
    execute(_allow, entries, _checked_role(role), timeout_s, dsn, config)


@functions.command("deny")
def deny_functions(*, names: Names, dsn: Dsn = None, config: ConfigFile = None) -> None:
    """Take permissions back; running workers follow within a minute."""
    execute(_deny, [_entry(name) for name in names], dsn, config)


@functions.command("list")
def list_functions(*, dsn: Dsn = None, config: ConfigFile = None, json: Json = False) -> None:
    """List what tasks may call, and how many functions each entry covers right now."""

    async def command() -> None:
        async with open_store(dsn, config) as store:
            found = await store.functions.list_functions()
        if json:
            print_json(found)
        elif found:
            print_table(_COLUMNS, [_cells(one) for one in found])
        else:
            say("tasks may call no function: chronos-runtime functions allow SCHEMA.FUNCTION")

    execute(command)


async def _allow(
    entries: Sequence[tuple[str, str | None]],
    role: str | None,
    timeout_s: float | None,
    dsn: str | None,
    file: Path | None,
) -> None:
    async with open_store(dsn, file) as store:
        for schema, name in entries:
            await store.functions.allow_function(schema, name, role=role, timeout_s=timeout_s)
            print_line(f"{_label(schema, name)} allowed")
        covers = {
            (one.schema_name, one.function_name): one.functions
            for one in await store.functions.list_functions()
        }
    for schema, name in entries:
        if not covers.get((schema, name)):
            function = f"{schema}.{name or 'FUNCTION'}"
            say(f"nothing to call yet: create function {function}(jsonb) returns jsonb")


async def _deny(
    entries: Sequence[tuple[str, str | None]], dsn: str | None, file: Path | None
) -> None:
    async with open_store(dsn, file) as store:
        for schema, name in entries:
            if not await store.functions.deny_function(schema, name):
                raise InputError(
                    f"function: {_label(schema, name)} was not allowed;"
                    " `chronos-runtime functions list` shows what is"
                )
            print_line(f"{_label(schema, name)} denied")


def _entry(text: str) -> tuple[str, str | None]:
    if "." not in text:
        return checked_schema(text, "schema"), None
    name = FunctionName.of(text, "function")
    return name.schema, name.name


def _checked_role(role: str | None) -> str | None:
    if role is not None and (role in ("", "none") or "\x00" in role):
        raise InputError(f"role: {role!r} is no role; leave it out to call as the worker")
    return role


def _label(schema: str, name: str | None) -> str:
    return f"all of {schema}" if name is None else f"{schema}.{name}"


def _cells(one: AllowedFunction) -> tuple[Cell, ...]:
    function = f"{one.schema_name}.{one.function_name or '*'}"
    return (
        clean(function),
        clean(one.role or ""),
        "" if one.timeout_s is None else span_text(one.timeout_s),
        str(one.functions) if one.functions else Text("0", style="bold red"),
    )
