"""The progress bar of a benchmark, on stderr, so that --json stays clean."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


class Steps:
    """How far a benchmark has come, in steps of about equal length."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task = progress.add_task("", total=None)

    def start(self, total: int, what: str) -> None:
        """Begin: so many steps to go."""
        self._progress.update(self._task, total=total, completed=0, description=what)

    def step(self, what: str = "") -> None:
        """One step is done; `what` is measured next."""
        self._progress.advance(self._task)
        if what:
            self._progress.update(self._task, description=what)


@contextmanager
def shown_steps() -> Iterator[Steps]:
    """Steps that people see."""
    columns = (TextColumn("{task.description:32}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True)) as progress:
        yield Steps(progress)
