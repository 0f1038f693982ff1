"""Logs: short coloured lines on a terminal, one JSON object a line everywhere else.

Fields given as `extra={…}` are carried along. Whatever a value holds, it cannot begin a line of
its own or speak to the terminal: control characters are escaped, and what has several lines is
set off below the message. Nothing in here raises, also when a value's `__repr__` does.
"""

import logging
import os
import re
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Literal

import msgspec

from chronos_runtime.failure import clean_text

LogFormat = Literal["auto", "text", "json"]
LogLevel = Literal["debug", "info", "warning", "error"]

VALUE_MAX_CHARS = 8_000

# Below space, DEL to 0x9f (0x9b alone starts an escape sequence), line and paragraph separators,
# and the marks that reorder text, with which a name can be made to read backwards.
CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_PACKAGE = "chronos_runtime."
_PLAIN_WORD = re.compile(r"[^\s\"'=]+")
_RESET, _DIM = "\x1b[0m", "\x1b[2m"
_LEVEL_COLORS = {"WARNING": "\x1b[33m", "ERROR": "\x1b[31m", "CRITICAL": "\x1b[1;31m"}


def setup_logs(
    format: LogFormat = "auto",
    level: LogLevel = "info",
    *,
    fields: Mapping[str, object] | None = None,
) -> None:
    """Send all logging to stderr; `fields` stand on every line."""
    is_terminal = sys.stderr.isatty()
    is_text = is_terminal if format == "auto" else format == "text"
    handler = _StderrHandler()
    formatter: logging.Formatter
    if is_text:
        has_color = is_terminal and not os.environ.get("NO_COLOR")
        formatter = TextFormatter(fields, has_color=has_color)
    else:
        formatter = JsonFormatter(fields)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper())


class JsonFormatter(logging.Formatter):
    """One JSON object a line: ts, level, logger, message, the fields, the exception."""

    def __init__(self, fields: Mapping[str, object] | None = None) -> None:
        super().__init__()
        self._fields = dict(fields or {})

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line of JSON."""
        line: dict[str, object] = {
            "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _message(record),
        }
        for name, value in (self._fields | _extra(record)).items():
            line[f"{name}_" if name in line else name] = _plain(value)
        if trace := _trace(record):
            line["exception"] = trace
        return escape_controls(msgspec.json.encode(line).decode(), as_json=True)


class TextFormatter(logging.Formatter):
    """`time level logger message key=value`; what has several lines comes below, set off."""

    def __init__(
        self, fields: Mapping[str, object] | None = None, *, has_color: bool = False
    ) -> None:
        super().__init__()
        self._fields = dict(fields or {})
        self._has_color = has_color

    def format(self, record: logging.LogRecord) -> str:
        """The record as a line, and a block below it where it has one."""
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        words = [
            self._color(f"{clock}.{int(record.msecs):03d}", _DIM),
            self._color(f"{record.levelname:<7}", _LEVEL_COLORS.get(record.levelname, "")),
            self._color(f"{_short(record.name):<11}", _DIM),
            escape_controls(_message(record)),
        ]
        blocks = []
        for name, value in (self._fields | _extra(record)).items():
            text = str(_plain(value))
            if "\n" in text:
                blocks.append(text)
            else:
                words.append(self._color(f"{escape_controls(name)}=", _DIM) + _quoted(text))
        blocks.append(_trace(record))
        lines = [line for block in blocks for line in block.rstrip().splitlines()]
        return "\n".join([" ".join(words), *(f"    | {escape_controls(line)}" for line in lines)])

    def _color(self, text: str, color: str) -> str:
        return f"{color}{text}{_RESET}" if self._has_color and color else text


def escape_controls(text: str, *, as_json: bool = False) -> str:
    r"""`text` with its control characters spelled out; in JSON by the escapes JSON knows.

    >>> escape_controls("a\nb\x1b[31m")
    'a\\nb\\x1b[31m'
    """
    if as_json:
        return CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
    return CONTROLS.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


class _StderrHandler(logging.Handler):
    """Writes to whatever stderr is by then: a progress display may stand in for it."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            sys.stderr.write(f"{self.format(record)}\n")
            sys.stderr.flush()
        except (OSError, ValueError):
            pass  # Nobody reads any more, or it is closed: there is nowhere to say so.


def _message(record: logging.LogRecord) -> str:
    return _safely(record.getMessage, lambda: f"{record.msg!r} {record.args!r}")


def _extra(record: logging.LogRecord) -> dict[str, object]:
    return {name: value for name, value in vars(record).items() if name not in _STANDARD}


def _plain(value: object) -> str | int | float | bool | None:
    """The value as every format can write it."""
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int) and value.bit_length() < 64:
        return value
    return _safely(lambda: value if isinstance(value, str) else str(value), lambda: repr(value))


def _safely(function: Callable[[], str], otherwise: Callable[[], str]) -> str:
    """The text that one of the two gives; a value's own methods may raise anything."""
    for attempt in (function, otherwise):
        try:
            return clean_text(attempt(), VALUE_MAX_CHARS)
        except Exception:  # noqa: BLE001, S112 - a log line must never break what it is about.
            continue
    return "<unprintable>"


def _trace(record: logging.LogRecord) -> str:
    if not record.exc_info or record.exc_info[1] is None:
        return ""
    error = record.exc_info[1]
    return _safely(
        lambda: "".join(traceback.format_exception(error)).rstrip(),
        lambda: f"{type(error).__name__}: <its text cannot be shown>",
    )


def _short(name: str) -> str:
    return name.rpartition(".")[2] if name.startswith(_PACKAGE) else escape_controls(name)


def _quoted(text: str) -> str:
    escaped = escape_controls(text)
    return escaped if _PLAIN_WORD.fullmatch(escaped) else f'"{escaped}"'
