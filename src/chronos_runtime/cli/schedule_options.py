"""The options of schedules and alarms, and how they are read from what was typed."""

from collections.abc import Callable
from typing import Annotated, Any, TypedDict, Unpack, cast, get_args

import typer

from chronos_runtime.cli.arguments import NONE, instant, span
from chronos_runtime.definitions import ScheduleOptions
from chronos_runtime.schedule import CatchUp, Fold, Gap, Overlap


def _one_of(values: object) -> str:
    return ", ".join(get_args(values))


Cron = Annotated[
    str | None,
    typer.Option(
        metavar="EXPRESSION", help="By the clock, as in '0 9 * * MON-FRI'.", show_default=False
    ),
]
Tz = Annotated[
    str | None,
    typer.Option(metavar="ZONE", help="Whose clock: Europe/Berlin, say.", show_default="UTC"),
]
Every = Annotated[
    str | None,
    typer.Option(metavar="SPAN", help="At intervals: 300, 5m, 1h30m.", show_default=False),
]
At = Annotated[
    str | None,
    typer.Option(metavar="ISO", help="Once: 2026-12-24T09:00+01:00, say.", show_default=False),
]
GapRule = Annotated[
    str | None,
    typer.Option(
        "--gap", help=f"A wall time that does not exist: {_one_of(Gap)}.", show_default="shift"
    ),
]
FoldRule = Annotated[
    str | None,
    typer.Option(
        "--fold", help=f"A wall time that comes twice: {_one_of(Fold)}.", show_default="first"
    ),
]
Starts = Annotated[
    str | None, typer.Option(metavar="ISO", help="Nothing before this.", show_default=False)
]
Ends = Annotated[
    str | None, typer.Option(metavar="ISO", help="Nothing after this.", show_default=False)
]
Jitter = Annotated[
    str | None,
    typer.Option(metavar="SPAN", help="Put each fire off by up to so much.", show_default="0"),
]
CatchUpRule = Annotated[
    str | None,
    typer.Option(
        "--catch-up",
        help=f"Which missed occurrences to make up for: {_one_of(CatchUp)}.",
        show_default="one",
    ),
]
CatchUpMax = Annotated[
    int | None, typer.Option(help="With all: at most so many.", show_default="100")
]
OverlapRule = Annotated[
    str | None,
    typer.Option(
        "--overlap",
        help=f"While the fire before still lives: {_one_of(Overlap)}.",
        show_default="allow",
    ),
]
Payload = Annotated[
    str | None,
    typer.Option(
        metavar="JSON",
        help="What each fire gets; {{occurrence}}, {{name}} and {{schedule_id}} in its strings"
        " are filled in.",
        show_default=False,
    ),
]
Topic = Annotated[
    str | None, typer.Option(help="Which queue.", show_default="default or the handler's")
]
Priority = Annotated[
    int | None, typer.Option(help="From 0 (first) to 9.", show_default="5 or the handler's")
]
MaxAttempts = Annotated[
    int | None, typer.Option(help="Dead after so many.", show_default="5 or the handler's")
]
Timeout = Annotated[
    str | None,
    typer.Option(metavar="SPAN", help="Stop the handler after so long.", show_default=False),
]
ExpectWithin = Annotated[
    str | None,
    typer.Option(
        "--expect-success-within",
        metavar="SPAN",
        help="Call it absent when no fire succeeded for so long.",
        show_default=False,
    ),
]
ExpectUrl = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Wake this when it is absent.", show_default=False),
]


class Typed(TypedDict, total=False):
    """What was typed; None: nothing was."""

    cron: str | None
    every: str | None
    at: str | None
    tz: str | None
    gap: str | None
    fold: str | None
    starts: str | None
    ends: str | None
    jitter: str | None
    catch_up: str | None
    catch_up_max: int | None
    overlap: str | None
    topic: str | None
    priority: int | None
    max_attempts: int | None
    timeout: str | None
    expect_success_within: str | None
    expect_url: str | None


_READERS: dict[str, tuple[str, Callable[[str, str], object]]] = {
    "every": ("every_s", span),
    "at": ("at", instant),
    "starts": ("starts_at", instant),
    "ends": ("ends_at", instant),
    "jitter": ("jitter_s", span),
    "timeout": ("timeout_s", span),
    "expect_success_within": ("expect_success_within_s", span),
}
_CLEARABLE = {"starts", "ends", "timeout", "expect_success_within", "expect_url"}


def read_options(**typed: Unpack[Typed]) -> ScheduleOptions:
    """What was typed, as the client takes it; `none` takes back what can be left out.

    >>> read_options(every="5m", timeout="none", tz=None)
    {'every_s': 300.0, 'timeout_s': None}
    """
    options: dict[str, Any] = {}
    for name, value in typed.items():
        if value is None:
            continue
        field, read = _READERS.get(name, (name, None))
        if value == NONE and name in _CLEARABLE:
            options[field] = None
        else:
            options[field] = value if read is None else read(str(value), field)
    return cast(ScheduleOptions, options)
