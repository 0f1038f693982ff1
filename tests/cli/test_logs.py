"""Logs carry their fields, cannot be forged, and never raise."""

import logging
import subprocess
import sys
from collections.abc import Iterator

import msgspec
import pytest

from chronos_runtime.logs import JsonFormatter, TextFormatter, setup_logs
from tests.cli.program import environment

HOSTILE = "done\n2030-01-01 INFO all is well\x1b[2J\x9b31m\u2028\u202e"


class Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError("no text for you")


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    """The root logger, put back as it was."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield logging.getLogger("chronos_runtime.actors.claimer")
    root.handlers[:], root.level = handlers, level


def record(message: str, *arguments: object, **extra: object) -> logging.LogRecord:
    made = logging.makeLogRecord(
        {"name": "chronos_runtime.actors.claimer", "levelname": "INFO", "msg": message}
    )
    made.args = arguments
    made.__dict__.update(extra)
    return made


def failed(error: Exception) -> logging.LogRecord:
    return record("it broke", exc_info=(type(error), error, error.__traceback__))


def test_a_json_line_carries_the_fields_of_the_record_and_of_the_process() -> None:
    line = JsonFormatter({"process": 3}).format(record("claimed %d", 5, job="abc", attempt=2))
    decoded = msgspec.json.decode(line)
    assert decoded.pop("ts").endswith("+00:00")
    assert decoded == {
        "level": "info",
        "logger": "chronos_runtime.actors.claimer",
        "message": "claimed 5",
        "process": 3,
        "job": "abc",
        "attempt": 2,
    }


def test_a_field_cannot_take_the_place_of_a_standard_one() -> None:
    decoded = msgspec.json.decode(JsonFormatter().format(record("true", level="fake", ts="never")))
    assert decoded["level"] == "info"
    assert decoded["level_"] == "fake"
    assert decoded["ts_"] == "never"


def test_a_text_line_is_short() -> None:
    line = TextFormatter({"process": 3}).format(record("claimed %d", 5, topic="a b", attempt=2))
    assert line.partition(" ")[2] == 'INFO    claimer     claimed 5 process=3 topic="a b" attempt=2'


@pytest.mark.parametrize("formatter", [JsonFormatter(), TextFormatter()])
def test_nothing_in_a_line_begins_another_or_speaks_to_the_terminal(
    formatter: logging.Formatter,
) -> None:
    for made in (record(HOSTILE), record("%s", HOSTILE), record("x", name_=HOSTILE[5:])):
        text = formatter.format(made)
        assert not [line for line in text.splitlines()[1:] if not line.startswith("    | ")]
        assert all(character.isprintable() or character == "\n" for character in text)


def test_a_message_is_one_line_in_text_too() -> None:
    assert "\n" not in TextFormatter().format(record(HOSTILE))


@pytest.mark.parametrize("formatter", [JsonFormatter(), TextFormatter()])
@pytest.mark.parametrize(
    "made",
    [
        record("%d of %d", "one"),
        record("%s", Unprintable()),
        record("field", value=Unprintable()),
        record("field", value="\ud800"),
        record("field", value=2**100, other=float("nan"), more={1: {2}}),
        failed(ValueError(Unprintable())),
    ],
)
def test_no_record_breaks_the_formatter(
    formatter: logging.Formatter, made: logging.LogRecord
) -> None:
    assert formatter.format(made)


def test_an_exception_is_a_field_with_its_traceback() -> None:
    decoded = msgspec.json.decode(JsonFormatter().format(failed(ValueError("why"))))
    assert decoded["message"] == "it broke"
    assert decoded["exception"].splitlines()[-1] == "ValueError: why"
    text = TextFormatter().format(failed(ValueError("why")))
    assert text.splitlines()[-1] == "    | ValueError: why"


def test_logs_are_json_where_nobody_looks(
    logger: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    setup_logs("auto", "info")
    logger.debug("unheard")
    logger.info("heard", extra={"job": "abc"})
    out, err = capsys.readouterr()
    assert out == ""
    assert msgspec.json.decode(err)["job"] == "abc"


def test_set_up_twice_says_everything_once(
    logger: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    setup_logs("text", "info")
    setup_logs("text", "info")
    logger.info("once")
    assert capsys.readouterr().err.count("once") == 1


def test_a_closed_stderr_stops_nobody() -> None:
    code = (
        "import logging, os; from chronos_runtime.logs import setup_logs; setup_logs('text');"
        " os.close(2); logging.getLogger().info('unheard'); print('still here')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True
    )
    assert done.stdout == "still here\n"
