"""What a demo looks like: bars on a terminal, a line a second elsewhere, a table at the end."""

import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import msgspec
from rich.console import Group
from rich.live import Live
from rich.progress import Progress, TextColumn
from rich.text import Text

from chronos_runtime.cli.demo_sum import Summary
from chronos_runtime.cli.output import console, duration, make_bar, print_line

_RATE_OVER_S = 1.0
_LINE_EVERY_S = 1.0


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """How things stand, by the database."""

    enqueued: int
    finished: int
    ready: int
    waiting: int
    """For their next attempt."""
    running: int
    dead: int


class View(Protocol):
    """Shows readings."""

    def show(self, reading: Reading) -> None:
        """Show one."""


class Rate:
    """Jobs a second, over the last second or so."""

    def __init__(self) -> None:
        self._points: deque[tuple[float, int]] = deque([(time.monotonic(), 0)])

    def update(self, finished: int) -> float:
        """The rate with one more point."""
        now = time.monotonic()
        self._points.append((now, finished))
        while len(self._points) > 2 and self._points[1][0] < now - _RATE_OVER_S:
            self._points.popleft()
        then, before = self._points[0]
        return max(finished - before, 0) / max(now - then, 0.001)


class Bars:
    """Two bars and a line of numbers."""

    def __init__(self, jobs: int, title: Text) -> None:
        self._progress = Progress(
            TextColumn("  {task.description}"),
            make_bar(width=48),
            TextColumn("{task.completed:>9,} of {task.total:,}"),
            TextColumn("{task.fields[rate]}", style="bold"),
        )
        self._enqueued = self._progress.add_task("enqueued", total=jobs, rate="")
        self._finished = self._progress.add_task("finished", total=jobs, rate="")
        self._rate = Rate()
        self._numbers = Text()
        self.whole = Group(title, Text(), self._progress, self._numbers)

    def show(self, reading: Reading) -> None:
        """Move the bars."""
        rate = self._rate.update(reading.finished)
        self._progress.update(self._enqueued, completed=reading.enqueued)
        self._progress.update(
            self._finished, completed=reading.finished, rate=f"{rate:,.0f} jobs/s" if rate else ""
        )
        self._numbers.plain = "  " + _numbers(reading)


class Lines:
    """A line a second."""

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs
        self._rate = Rate()
        self._shown_at = 0.0

    def show(self, reading: Reading) -> None:
        """Print one, unless the last was just now."""
        rate = self._rate.update(reading.finished)
        now = time.monotonic()
        if now - self._shown_at < _LINE_EVERY_S and reading.finished < self._jobs:
            return
        self._shown_at = now
        print_line(
            f"{reading.finished:,} of {self._jobs:,} finished, {rate:,.0f} jobs/s,"
            f" {_numbers(reading)}"
        )


def _numbers(reading: Reading) -> str:
    return (
        f"{reading.ready:,} ready · {reading.running:,} running"
        f" · {reading.waiting:,} waiting for a retry · {reading.dead:,} dead"
    )


@contextmanager
def make_view(jobs: int, processes: int, url: str) -> Iterator[View]:
    """The view that fits where the output goes."""
    workers = "one process" if processes == 1 else f"{processes} processes"
    out = console()
    if not out.is_terminal:
        print_line(f"{jobs:,} jobs, {workers}, metrics at {url}")
        yield Lines(jobs)
        return
    title = Text.assemble(
        ("Chronos demo", "bold"), f"  {workers}, one Postgres; metrics at ", (url, "underline")
    )
    bars = Bars(jobs, title)
    with Live(bars.whole, console=out, refresh_per_second=12):
        yield bars


def print_summary(summary: Summary, took_s: float, url: str) -> None:
    """The table at the end."""
    if summary.is_right:
        verdict = Text("succeeded + dead = enqueued: nothing lost, nothing twice", style="green")
    else:
        verdict = Text(
            f"WRONG: succeeded + dead is not enqueued; {summary.others:,} in other states",
            style="bold red",
        )
    print_line("")
    _print_row("enqueued", f"{summary.enqueued:,}", f"all ended after {took_s:.1f} s")
    _print_row("succeeded", f"{summary.succeeded:,}")
    _print_row("dead", f"{summary.dead:,}", "the doomed ones, after two attempts each")
    _print_row("check", "ok" if summary.is_right else "failed", verdict)
    _print_row("retries", f"{summary.retries:,}", "failed attempts that were tried again")
    _print_row("throughput", f"{summary.rate:,.0f}", "jobs a second, while more were enqueued")
    _print_row("wait", duration(summary.wait_p50_s), "p50, from enqueued to started")
    _print_row("", duration(summary.wait_p99_s), "p99")
    _print_row("metrics", "", f"{url} while it runs; --serve keeps it up")


def _print_row(name: str, value: str, note: str | Text = "") -> None:
    line = Text(f"{name:>12}  ", style="dim")
    line.append(f"{value:>9}", style="not dim bold")
    if note:
        line.append("  ").append(note if isinstance(note, Text) else Text(note, style="not dim"))
    print_line(line)


def print_served(dsn: str, url: str) -> None:
    """Where to look while it stays up."""
    print_line(f"\n  metrics   {url}")
    print_line(f"  jobs      chronos-runtime jobs list --dsn '{dsn}'")
    print_line("  Ctrl-C ends it and removes the database")
