"""Every bad argument is refused with the name of its field."""

import math
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chronos_runtime.checks import (
    DELAY_MAX_S,
    KEY_MAX_BYTES,
    MAX_ATTEMPTS_MAX,
    NAME_MAX_BYTES,
    RUN_AT_FIRST,
    RUN_AT_LAST,
    checked_delay,
    checked_gate,
    checked_key,
    checked_max_attempts,
    checked_name,
    checked_priority,
    checked_run_at,
    checked_timeout,
)
from chronos_runtime.errors import InputError

# How long an example takes says more about the machine's load than about the code.
UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


class Nowhere(tzinfo):
    def __repr__(self) -> str:
        return "Nowhere()"

    def utcoffset(self, moment: datetime | None) -> None:
        return None

    def dst(self, moment: datetime | None) -> None:
        return None

    def tzname(self, moment: datetime | None) -> None:
        return None


def refuse(check: Callable[..., object], field: str, *arguments: Any) -> str:
    with pytest.raises(InputError) as caught:
        check(*arguments)
    assert str(caught.value).startswith(f"{field}: ")
    return str(caught.value)


@pytest.mark.parametrize("field", ["kind", "topic"])
@pytest.mark.parametrize(
    "name",
    ["", " ", "\t", "a\nb", "a\x00b", "\x1b[31m", "\ud800", "a\u202eb", None, 7, b"mail", ["mail"]],
    ids=ascii,
)
def test_a_name_that_people_could_not_read_is_refused(name: object, field: str) -> None:
    refuse(checked_name, field, name, field)


@pytest.mark.parametrize("name", ["m", "mail.send", "größe", "邮件", "two words", "😀", "default*"])
def test_a_name_may_be_any_printable_text(name: str) -> None:
    assert checked_name(name, "topic") == name


def test_a_name_is_measured_in_bytes() -> None:
    assert checked_name("é" * (NAME_MAX_BYTES // 2), "kind")
    refuse(checked_name, "kind", "é" * (NAME_MAX_BYTES // 2) + "x", "kind")
    refuse(checked_name, "topic", "x" * (NAME_MAX_BYTES + 1), "topic")


def test_the_name_of_all_topics_is_a_gate_and_a_kind_but_no_topic() -> None:
    assert checked_gate("*") == "*"
    assert checked_gate("mail") == "mail"
    assert checked_name("*", "kind") == "*"
    assert "all topics" in refuse(checked_name, "topic", "*", "topic")
    refuse(checked_gate, "topic", "")
    refuse(checked_gate, "topic", None)


def test_priorities_are_the_whole_numbers_from_0_to_9() -> None:
    assert [checked_priority(number) for number in range(10)] == list(range(10))
    for wrong in (-1, 10, 10**30, 5.0, "5", None, True, False, math.nan):
        refuse(checked_priority, "priority", wrong)


def test_max_attempts_are_whole_and_bounded() -> None:
    assert checked_max_attempts(1) == 1
    assert checked_max_attempts(MAX_ATTEMPTS_MAX) == MAX_ATTEMPTS_MAX
    for wrong in (0, -1, MAX_ATTEMPTS_MAX + 1, 2.0, "2", None, True, math.inf):
        refuse(checked_max_attempts, "max_attempts", wrong)


NO_DELAYS = [
    math.nan,
    math.inf,
    -math.inf,
    -1,
    -0.001,
    True,
    False,
    "5",
    None,
    timedelta(1),
    1j,
    10**400,
    -(10**400),
]


@pytest.mark.parametrize("wrong", NO_DELAYS, ids=lambda wrong: ascii(wrong)[:20])
def test_a_delay_is_a_finite_number_that_is_not_negative(wrong: object) -> None:
    assert "number of seconds" in refuse(checked_delay, "delay_s", wrong, "delay_s")


@UNHURRIED
@given(st.floats(0.0, DELAY_MAX_S) | st.integers(0, int(DELAY_MAX_S)))
def test_a_delay_of_up_to_a_year_is_taken_as_it_is(delay_s: float) -> None:
    assert checked_delay(delay_s, "delay_s") == delay_s
    assert type(checked_delay(delay_s, "delay_s")) is float


@pytest.mark.parametrize("delay_s", [DELAY_MAX_S + 1, 1e300, 10**300])
def test_no_delay_is_longer_than_a_year(delay_s: float) -> None:
    assert checked_delay(delay_s, "backoff") == DELAY_MAX_S


@pytest.mark.parametrize("wrong", [*NO_DELAYS, 0, 0.0, 1e-50], ids=lambda wrong: ascii(wrong)[:20])
def test_a_timeout_is_a_time_a_handler_could_run_in(wrong: Any) -> None:
    if wrong is None:
        assert checked_timeout(None) is None
    else:
        refuse(checked_timeout, "timeout_s", wrong)


def test_a_timeout_is_taken_as_it_is() -> None:
    assert checked_timeout(2.5) == 2.5
    assert checked_timeout(0.001) == 0.001
    assert checked_timeout(60) == 60
    assert checked_timeout(1e300) == DELAY_MAX_S, "as long as the table can say"


@pytest.mark.parametrize(
    "wrong",
    [
        datetime(2030, 1, 1),  # noqa: DTZ001
        datetime(2030, 1, 1, tzinfo=Nowhere()),
        RUN_AT_FIRST - timedelta(microseconds=1),
        RUN_AT_LAST + timedelta(microseconds=1),
        datetime.min.replace(tzinfo=timezone(timedelta(hours=14))),
        datetime.max.replace(tzinfo=timezone(-timedelta(hours=12))),
        date(2030, 1, 1),
        "2030-01-01T00:00:00Z",
        1_900_000_000,
    ],
    ids=ascii,
)
def test_run_at_is_an_instant_of_our_time(wrong: Any) -> None:
    refuse(checked_run_at, "run_at", wrong)


def test_run_at_may_be_left_out_or_lie_anywhere_from_2000_to_9999() -> None:
    assert checked_run_at(None) is None
    for instant in (RUN_AT_FIRST, RUN_AT_LAST, datetime(2026, 7, 1, tzinfo=UTC)):
        assert checked_run_at(instant) is instant


@pytest.mark.parametrize(
    "wrong",
    ["", "a\x00b", "\ud800", "x" * (KEY_MAX_BYTES + 1), "é" * 501, 7, b"key", ["key"]],
    ids=lambda wrong: ascii(wrong)[:20],
)
def test_a_key_is_text_that_fits_an_index(wrong: object) -> None:
    refuse(checked_key, "key", wrong)


@pytest.mark.parametrize("key", ["k", " ", "line\nbreak", "é" * 500, "x" * KEY_MAX_BYTES])
def test_a_key_may_be_any_text_that_can_be_stored(key: str) -> None:
    assert checked_key(key) == key
    assert checked_key(None) is None
