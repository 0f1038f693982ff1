"""What a benchmark says: a table for people, figures for guards, charts; and where it is kept."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec
from rich.console import Console
from rich.table import Table

from benchmarks.facts import Facts
from benchmarks.plot import draw

RESULTS = Path(__file__).parent / "results"


class Series(msgspec.Struct, frozen=True):
    """One line, or the bars of one colour."""

    name: str
    x: Sequence[str | float]
    y: Sequence[float]


class Chart(msgspec.Struct, frozen=True):
    """One picture of a report."""

    title: str
    x: str
    y: str
    kind: Literal["bars", "lines"]
    series: list[Series]
    log_y: bool = False


class Report(msgspec.Struct, frozen=True):
    """The outcome of one benchmark.

    `figures` holds what a guard or the README may quote, ratios above all: a ratio measured side
    by side in one run means something on a machine that is slow or busy, a speed does not.
    """

    name: str
    question: str
    rows: list[dict[str, object]]
    figures: dict[str, float]
    charts: list[Chart] = []


class Kept(msgspec.Struct, frozen=True):
    """A report as it stands in `benchmarks/results`, with what it was measured on."""

    report: Report
    facts: Facts
    is_quick: bool


def keep(kept: Kept) -> None:
    """Write the report and its charts. Quick runs, for looking and not for citing, go aside."""
    folder = RESULTS / "quick" if kept.is_quick else RESULTS
    folder.mkdir(parents=True, exist_ok=True)
    name = kept.report.name
    text = msgspec.json.format(msgspec.json.encode(kept), indent=2)
    (folder / f"{name}.json").write_bytes(text + b"\n")
    if kept.report.charts:
        figure = draw(kept.report, kept.facts)
        for suffix in ("png", "svg"):
            figure.savefig(folder / f"{name}.{suffix}", dpi=130)


def show(kept: Kept, console: Console) -> None:
    """Print the table, the figures, and the machine they were measured on."""
    report = kept.report
    console.print(f"[bold]{report.name}[/bold]: {report.question}")
    columns = list(dict.fromkeys(key for row in report.rows for key in row))
    table = Table(*columns)
    for place, column in enumerate(columns):
        if not any(isinstance(row.get(column), str) for row in report.rows):
            table.columns[place].justify = "right"
    for row in report.rows:
        table.add_row(*(spoken(row.get(column)) for column in columns))
    console.print(table)
    for name, value in report.figures.items():
        console.print(f"  {name:44} {spoken(value):>14}", highlight=False)
    console.print(f"[dim]{kept.facts.sentence}[/dim]", highlight=False)


def spoken(value: object) -> str:
    """A figure as people read it.

    >>> [spoken(value) for value in (41234.5, 0.8333, 0.00166, 12, None, "text")]
    ['41,234', '0.833', '0.00166', '12', '', 'text']
    """
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
