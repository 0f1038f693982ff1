"""What commands print: tables and colour on a terminal, aligned text or JSON elsewhere.

Job data is other people's text. It is printed as text only: never as markup, and without the
escape sequences and control characters that would let it speak to the terminal.
"""

import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Literal

import msgspec
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from chronos_runtime.logs import CONTROLS, escape_controls

# Standard colours only: a terminal's own theme makes them fit its background.
STATE_STYLES = {
    "scheduled": "dim",
    "ready": "",
    "running": "bold blue",
    "succeeded": "green",
    "dead": "bold red",
    "failed": "red",
    "cancelled": "dim",
}

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    r"|\x9b[0-?]*[ -/]*[@-~]"  # the same in one character
    r"|\x1b[\]PX^_].*?(?:\x07|\x1b\\|$)"  # OSC and other strings: titles, links, clipboard
    r"|\x1b[ -/]*[0-~]",  # the short ones
    re.DOTALL,
)
_GAP = "  "
_CUT_MIN = 6
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"))


class Column(msgspec.Struct, frozen=True):
    """One column of a table."""

    name: str
    align: Literal["left", "right"] = "left"
    is_whole: bool = True
    """Never cut, however narrow the terminal."""


Cell = str | Text


class _Console(Console):
    """A console that is content when whoever read it has seen enough, as in `… | head`."""

    def on_broken_pipe(self) -> None:
        # Nothing may be written any more, also not what Python flushes at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(0)


def console() -> Console:
    """Standard output, as it is now."""
    return _Console(highlight=False, markup=False, emoji=False)


def error_console() -> Console:
    """Standard error, as it is now."""
    return _Console(stderr=True, highlight=False, markup=False, emoji=False)


def print_line(text: Cell) -> None:
    """One line on standard output, whole at any width."""
    console().print(text, soft_wrap=True)


def say(text: Cell) -> None:
    """One line beside the output, on standard error."""
    error_console().print(text, soft_wrap=True)


def print_json(value: object) -> None:
    """One JSON document on standard output."""
    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    lines = (escape_controls(line, as_json=True) for line in text.split("\n"))
    print_line("\n".join(lines))


def print_table(columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> None:
    """A table in colour that fits the terminal; elsewhere aligned text, whole."""
    out = console()
    heads = [Text(column.name, style="bold") for column in columns]
    lines = [heads, *([_text(cell) for cell in row] for row in rows)]
    widths = [max(line[place].cell_len for line in lines) for place in range(len(columns))]
    if out.is_terminal:
        _cut_to(out.width, columns, widths)
    for line in lines:
        for cell, column, width in zip(line, columns, widths, strict=True):
            cell.truncate(width, overflow="ellipsis")
            cell.align(column.align, width)
        whole = Text(_GAP).join(line)
        whole.rstrip()
        print_line(whole)


def _cut_to(room: int, columns: Sequence[Column], widths: list[int]) -> None:
    """Cut what may be cut, the widest first, until all fit."""
    excess = sum(widths) + len(_GAP) * (len(widths) - 1) - room
    for _ in range(excess):
        places = [place for place, column in enumerate(columns) if not column.is_whole]
        widest = max(places, key=widths.__getitem__)
        if widths[widest] <= _CUT_MIN:
            return
        widths[widest] -= 1


def _text(cell: Cell) -> Text:
    return cell.copy() if isinstance(cell, Text) else Text(cell)


def clean(text: str) -> str:
    r"""Other people's text on one line, with nothing in it that a terminal obeys.

    >>> clean("\x1b[31mred\x1b[0m\ttext\n\x07")
    'red text'
    """
    return " ".join(CONTROLS.sub(" ", _ESCAPES.sub("", text)).split(" ")).strip()


def clean_lines(text: str) -> str:
    """The same for text of several lines, which keeps them."""
    lines = _ESCAPES.sub("", text).expandtabs(4).splitlines()
    return "\n".join(CONTROLS.sub(" ", line).rstrip() for line in lines)


def state_text(state: str) -> Text:
    """A state in its colour."""
    return Text(state, style=STATE_STYLES.get(state, ""))


def duration(seconds: float) -> str:
    """A time span for people.

    >>> [duration(s) for s in (0.0123, 3.21, 75, 7_200, 200_000)]
    ['12 ms', '3.2 s', '1 min', '2 h', '2 d']
    """
    for size, unit in _UNITS:
        if seconds >= size:
            return f"{seconds // size:.0f} {unit}"
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"


def ago(instant: datetime, now: datetime | None = None) -> str:
    """How far an instant lies from now.

    >>> now = datetime(2026, 1, 1, tzinfo=UTC)
    >>> ago(datetime(2026, 1, 1, 0, 5, tzinfo=UTC), now)
    'in 5 min'
    """
    distance_s = ((now or datetime.now(UTC)) - instant).total_seconds()
    if abs(distance_s) < 1:
        return "now"
    text = duration(abs(distance_s))
    return f"in {text}" if distance_s < 0 else f"{text} ago"


def make_bar(width: int | None = None) -> BarColumn:
    """A bar in standard colours, as wide as there is room unless told."""
    return BarColumn(
        width, style="dim", complete_style="blue", finished_style="green", pulse_style="blue"
    )


@contextmanager
def progress_bar(what: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """A bar on standard error while long work runs; call what it yields with the steps done."""
    with Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        make_bar(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=(out := error_console()),
        transient=True,
        disable=not out.is_terminal,
    ) as progress:
        task = progress.add_task(what, total=total)
        yield lambda steps: progress.advance(task, steps)
