"""From a command to its end: one event loop, one exit code, one line about what went wrong."""

import sys
from collections.abc import Awaitable, Callable, Iterator
from typing import NoReturn, TypeVar, TypeVarTuple

import anyio
import typer

from chronos_runtime.cli.output import say
from chronos_runtime.errors import EXIT_SECOND_SIGNAL, ChronosError, ConfigError
from chronos_runtime.logs import escape_controls

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")


def execute(command: Callable[[*Arguments], Awaitable[T]], *arguments: *Arguments) -> T:
    """Run a command's coroutine to its end, as the runtime runs: on uvloop."""
    try:
        return anyio.run(command, *arguments, backend_options={"use_uvloop": True})
    except KeyboardInterrupt:
        raise typer.Exit(EXIT_SECOND_SIGNAL) from None


def exit_with(program: Callable[[], object]) -> NoReturn:
    """Run the program; an error of ours becomes one clear line and its exit code.

    The runtime's errors come in groups, one per ring of actors. What is not ours is a bug: it
    keeps its traceback and ends the process with 1.
    """
    code = 0
    try:
        if sys.flags.optimize:
            raise ConfigError(
                "python -O removes the assertions that guard every job; run without it"
                " (and without PYTHONOPTIMIZE)"
            )
        program()
    except* ChronosError as group:
        errors = list(_leaves(group))
        for error in errors:
            _complain(error)
        code = errors[0].exit_code
    sys.exit(code)


def _leaves(group: BaseExceptionGroup[ChronosError]) -> Iterator[ChronosError]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error


def _complain(error: ChronosError) -> None:
    text = "\n".join([str(error), *getattr(error, "__notes__", ())])
    lines = [escape_controls(line) for line in text.splitlines()]
    say("\n".join(["error: " + lines[0], *lines[1:]]))
