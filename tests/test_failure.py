"""Whatever a handler raises, there is a record of it that Postgres takes."""

from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chronos_runtime.failure import (
    MESSAGE_MAX_CHARS,
    TRACEBACK_MAX_CHARS,
    clean_text,
    describe,
    failure_record,
    reason_record,
)
from chronos_runtime.store.migrations import Connection

# How long an example takes says more about the machine's load than about the code.
UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

# Every code point, also those that UTF-8 and jsonb cannot hold.
ANY_CHARACTER = st.characters(codec=None, exclude_categories=[])
ANY_TEXT = st.text(ANY_CHARACTER) | st.text(
    st.sampled_from("\x00\ud800\udfff\x1b\\\"'\n é😀\u2028")
)

TAKE = "select count(*) from unnest($1::jsonb[]) as record where jsonb_typeof(record) = 'object'"


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no comment")


class Numeric(Exception):
    def __str__(self) -> str:
        return 7  # type: ignore[return-value]  # noqa: PLE0307


class Endless(Exception):
    def __str__(self) -> str:
        return str(self)


class Hostile(str):
    __slots__ = ()

    def replace(self, *arguments: Any) -> str:
        raise RuntimeError("hands off")

    def __len__(self) -> int:
        raise RuntimeError("hands off")


class Trap(Exception):
    def __str__(self) -> str:
        return Hostile("x")


def raised(error: BaseException) -> BaseException:
    try:
        raise error  # noqa: TRY301
    except BaseException as caught:  # noqa: BLE001
        return caught


def record_of(error: BaseException) -> dict[str, Any]:
    text = failure_record(error, attempt=3, worker="w")
    record = msgspec.json.decode(text, type=dict[str, Any])
    assert "\x00" not in "".join(str(value) for value in record.values())
    return record


def test_a_record_tells_what_was_raised_where_and_by_whom() -> None:
    record = record_of(raised(ValueError("no such order")))
    assert record["type"] == "ValueError"
    assert record["message"] == "no such order"
    assert (record["attempt"], record["worker"]) == (3, "w")
    assert record["traceback"].startswith("Traceback (most recent call last)")
    assert "in raised" in record["traceback"]


def test_a_reason_is_recorded_like_a_failure_without_a_traceback() -> None:
    record = msgspec.json.decode(reason_record("Cancel", "with\x00drawn", attempt=1, worker="w"))
    assert record == {
        "type": "Cancel",
        "message": "with\ufffddrawn",
        "attempt": 1,
        "worker": "w",
    }


@pytest.mark.parametrize("error", [Mute(), Numeric(), Endless(), Trap()], ids=repr)
def test_an_exception_that_cannot_say_what_it_is_goes_by_its_type(error: Exception) -> None:
    name = type(error).__name__
    assert describe(error).startswith(f"<{name}.__str__ raised ")
    record = record_of(raised(error))
    assert (record["type"], record["message"]) == (name, describe(error))


def test_causes_and_groups_that_cannot_say_what_they_are_are_recorded_too() -> None:
    error = ValueError("outer")
    error.__cause__ = raised(Mute())
    assert "outer" in record_of(raised(error))["traceback"]
    group = record_of(raised(ExceptionGroup("both", [Mute(), ValueError("inner")])))
    assert "inner" in group["traceback"]


def test_notes_context_and_cycles_do_no_harm() -> None:
    error = ValueError("x")
    error.__cause__ = error
    error.__notes__ = 7  # type: ignore[assignment]
    assert record_of(raised(error))["message"] == "x"


@pytest.mark.parametrize("length", [MESSAGE_MAX_CHARS + 1, 1_000_000, 20_000_000])
def test_a_message_of_any_length_is_cut_in_the_middle(length: int) -> None:
    record = record_of(raised(ValueError(f"head{'x' * length}tail")))
    message, trace = record["message"], record["traceback"]
    assert len(message) <= MESSAGE_MAX_CHARS
    assert message.startswith("headx")
    assert message.endswith("xtail")
    assert " cut …" in message
    assert len(trace) <= TRACEBACK_MAX_CHARS
    assert trace.startswith("Traceback")


def test_a_message_that_fits_is_not_touched() -> None:
    assert describe(ValueError("x" * MESSAGE_MAX_CHARS)) == "x" * MESSAGE_MAX_CHARS


def test_a_deep_stack_is_shortened_and_keeps_the_place_that_raised() -> None:
    def descend(levels: int) -> None:
        if levels == 0:
            raise ValueError("at the bottom")
        descend(levels - 1)

    with pytest.raises(ValueError, match="at the bottom") as caught:
        descend(300)
    trace = record_of(caught.value)["traceback"]
    assert len(trace) <= TRACEBACK_MAX_CHARS
    assert 'raise ValueError("at the bottom")' in trace


def test_a_class_with_an_impossible_name_is_recorded_too() -> None:
    odd = type("Odd", (Exception,), {})
    odd.__qualname__ = "Odd\x00\ud800" + "x" * 1_000
    name = record_of(raised(odd()))["type"]
    assert name.startswith("Odd\ufffd?x")
    assert len(name) <= 200


@UNHURRIED
@given(ANY_TEXT, st.integers(30, 200))
def test_clean_text_is_storable_and_short(text: str, max_chars: int) -> None:
    clean = clean_text(text, max_chars)
    clean.encode()
    assert "\x00" not in clean
    assert len(clean) <= max_chars
    assert clean_text(clean, max_chars) == clean


@UNHURRIED
@given(st.text(ANY_CHARACTER, max_size=30).filter(lambda text: "\x00" not in text))
def test_clean_text_changes_nothing_that_can_be_stored(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        return
    assert clean_text(text, 30) == text


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(ANY_TEXT, min_size=20, max_size=60))
async def test_postgres_takes_the_record_of_any_message(
    connection: Connection, messages: list[str]
) -> None:
    records = [
        failure_record(raised(ValueError(message)), attempt=1, worker="w") for message in messages
    ]
    records += [reason_record(text, text, attempt=1, worker="w") for text in messages]
    assert await connection.fetchval(TAKE, records) == len(records)


async def test_postgres_takes_the_record_of_any_exception(connection: Connection) -> None:
    errors = [
        Mute(),
        Numeric(),
        Endless(),
        Trap(),
        ValueError("x\x00" * 1_000_000),
        SyntaxError("bad\x00", ("file\x00\ud800", 1, 10**100, "text\x00\udfff", 1, -1)),
        UnicodeDecodeError("utf-8", b"\xff\x00", 0, 1, "\ud800"),
        OSError(5, "\x00", "\udcff"),
        KeyError("\x00"),
        ExceptionGroup("\x00", [ValueError("\ud800"), Mute()]),
        SystemExit("\x00"),
        AssertionError(),
    ]
    records = [failure_record(raised(error), attempt=1, worker="w") for error in errors]
    assert await connection.fetchval(TAKE, records) == len(errors)
