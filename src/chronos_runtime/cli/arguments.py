"""What people type: spans, instants and JSON, read strictly; a mistake names the field."""

import re
from collections.abc import Sequence
from datetime import datetime
from typing import TypeVar

import msgspec

from chronos_runtime.errors import InputError

NONE = "none"
"""Takes back an option of a schedule that was given before."""

_UNITS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
_SPAN = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?", re.ASCII)
_NUMBER = re.compile(r"\d+(?:\.\d+)?", re.ASCII)
_SPAN_MAX_CHARS = 32


def span(text: str, field: str) -> float:
    """Seconds, from `300`, `5m`, `1h30m` or `2.5s`.

    >>> [span(text, "every_s") for text in ("300", "5m", "1h30m", "2.5s")]
    [300.0, 300.0, 5400.0, 2.5]
    """
    if len(text) <= _SPAN_MAX_CHARS:
        if _NUMBER.fullmatch(text):
            return float(text)
        if text and (found := _SPAN.fullmatch(text)):
            sizes = zip(found.groups(), _UNITS.values(), strict=True)
            return float(sum(float(count) * size for count, size in sizes if count))
    raise InputError(f"{field}: {text!r} is no time span such as 300, 90s, 5m, 1h30m or 2d")


def span_text(seconds: float) -> str:
    """The same the other way round, and exactly.

    >>> [span_text(seconds) for seconds in (300, 5400, 2.5, 86_401)]
    ['5m', '1h30m', '2.5s', '1d1s']
    """
    text, rest = "", seconds
    for unit, size in _UNITS.items():
        if unit == "s":
            return f"{text}{rest:g}s" if rest or not text else text
        count, rest = divmod(rest, size)
        text += f"{count:.0f}{unit}" if count else ""
    raise AssertionError("there are seconds")


def instant(text: str, field: str) -> datetime:
    """An instant, in ISO 8601 and with its offset.

    >>> str(instant("2026-12-24T09:00+01:00", "at"))
    '2026-12-24 09:00:00+01:00'
    """
    try:
        read = datetime.fromisoformat(text)
    except ValueError as error:
        raise InputError(f"{field}: {text!r} is not like 2030-01-31T08:00:00Z") from error
    if read.utcoffset() is None:
        raise InputError(f"{field}: {text!r} has no time zone; end it with Z, or with +01:00, say")
    return read


def document(text: str, field: str = "payload") -> object:
    """JSON.

    >>> document('{"day": 1}')
    {'day': 1}
    """
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise InputError(f"{field}: not JSON: {error}; quote it for the shell: '{{…}}'") from error


Choice = TypeVar("Choice", bound=str)


def checked_choices(
    given: list[str] | None, choices: Sequence[Choice], field: str
) -> list[Choice] | None:
    """What was given of an option that can be repeated, once all of it is among the choices.

    >>> checked_choices(["b", "a"], ("a", "b", "c"), "state")
    ['a', 'b']
    """
    for one in given or ():
        if one not in choices:
            raise InputError(f"{field}: {one!r} is not one of {', '.join(choices)}")
    return [choice for choice in choices if choice in given] if given else None
