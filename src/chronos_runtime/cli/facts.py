"""One thing and everything that is known about it: facts, documents, blocks of text."""

from collections.abc import Iterable
from datetime import datetime

import msgspec
from rich.table import Table
from rich.text import Text

from chronos_runtime.cli.output import Cell, ago, clean_lines, console, print_line

_NAME_WIDTH = 13


def print_facts(facts: Iterable[tuple[str, Cell]]) -> None:
    """A name and a value a line; on a terminal long values are folded beside their name."""
    out = console()
    if not out.is_terminal:
        for name, value in facts:
            print_line(f"{name:<{_NAME_WIDTH}} {value}")
        return
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts:
        table.add_row(name, value)
    out.print(table)


def print_document(name: str, value: object) -> None:
    """JSON under a heading."""
    print_heading(name)
    print_block(clean_lines(msgspec.json.format(msgspec.json.encode(value), indent=2).decode()))


def print_heading(name: str) -> None:
    """What comes next."""
    print_line("")
    print_line(Text(name, style="bold"))


def print_block(text: str, style: str = "") -> None:
    """Lines, set in."""
    for line in text.splitlines():
        print_line(Text(f"  {line}", style=style))


def clock(instant: datetime) -> str:
    """An instant on the clock of whoever looks, and how far it is."""
    return f"{instant.astimezone():%Y-%m-%d %H:%M:%S %Z} ({ago(instant)})"
