"""However an attempt ended, there is an outcome, and it can be stored."""

import logging
import re
import sys
from typing import Any
from uuid import UUID

import msgspec
import pytest

from chronos_runtime.backoff import Fixed
from chronos_runtime.errors import PermanentFailure, TemporaryFailure
from chronos_runtime.failure import MESSAGE_MAX_CHARS, TRACEBACK_MAX_CHARS
from chronos_runtime.handlers import Handler
from chronos_runtime.job import Cancel, Discard, Finish, Job, Outcome, Retry, Return, Snooze
from chronos_runtime.outcomes import Outcomes, StopReason
from tests.actors.bench import make_handler, make_job

RESULT_MAX_BYTES = 1_000
RECORD_MAX_BYTES = 4 * (MESSAGE_MAX_CHARS + TRACEBACK_MAX_CHARS)  # Four bytes a character.

outcomes = Outcomes("some-worker", RESULT_MAX_BYTES)


async def _do_nothing(job: Job, payload: object) -> None: ...


def plain_handler(**options: Any) -> Handler:
    return make_handler(_do_nothing, **({"backoff": Fixed(7.0)} | options))


def returned(result: object, **job: Any) -> Outcome:
    return outcomes.returned(make_job(**job), plain_handler(), result, 0.5)


def failed(error: BaseException, **job: Any) -> Outcome:
    return outcomes.failed(make_job(**job), plain_handler(), error, 0.5)


def record_of(outcome: Outcome) -> dict[str, Any]:
    """The error record, once it is known to be storable."""
    assert outcome.error is not None
    assert len(outcome.error.encode()) <= RECORD_MAX_BYTES
    assert "\\u0000" not in outcome.error
    record: dict[str, Any] = msgspec.json.decode(outcome.error)
    assert record["worker"] == "some-worker"
    return record


UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
LAST = {"attempt": 5, "max_attempts": 5}


@pytest.mark.parametrize(
    ("result", "job", "expected"),
    [
        (None, {}, ("succeeded", None)),
        (0, {}, ("succeeded", "0")),
        (False, {}, ("succeeded", "false")),
        ("", {}, ("succeeded", '""')),
        ([], LAST, ("succeeded", "[]")),
        (UUID(int=1), {}, ("succeeded", '"00000000-0000-0000-0000-000000000001"')),
        (Cancel("no"), {}, ("cancelled", None)),
        (Discard("no"), {}, ("dead", None)),
        (Retry(1.0, "no"), LAST, ("dead", None)),
    ],
)
def test_what_ends_a_job(
    result: object, job: dict[str, Any], expected: tuple[str, str | None]
) -> None:
    outcome = returned(result, **job)
    assert isinstance(outcome, Finish)
    assert (outcome.state, outcome.result) == expected
    assert outcome.run_s == 0.5
    if outcome.state != "succeeded":
        assert record_of(outcome)["message"] == "no"


@pytest.mark.parametrize(
    ("result", "job", "expected"),
    [
        (Snooze(2.0), {}, ("snooze", 2.0, True)),
        (Snooze(0), {}, ("snooze", 0.0, True)),
        (Snooze(2.0), LAST, ("snooze", 2.0, True)),
        (Retry(3.0), {}, ("retry", 3.0, False)),
        (Retry(1e12), {}, ("retry", 366 * 86_400.0, False)),
        (Snooze(-1.0), {}, ("retry", 7.0, False)),
        (Snooze(float("inf")), {}, ("retry", 7.0, False)),
    ],
)
def test_what_brings_a_job_back(
    result: object, job: dict[str, Any], expected: tuple[str, float, bool]
) -> None:
    outcome = returned(result, **job)
    assert isinstance(outcome, Return)
    assert (outcome.why, outcome.delay_s, outcome.gives_back) == expected


@pytest.mark.parametrize(
    ("reason", "job", "end", "error"),
    [
        ("timeout", {}, "retry", "TimeoutError"),
        ("timeout", LAST, "dead", "TimeoutError"),
        ("cancel", {}, "cancelled", "Cancelled"),
        ("lost", LAST, "interrupt", None),
        (None, {}, "interrupt", "Interrupted"),
        (None, LAST, "interrupt", "Interrupted"),
    ],
)
def test_what_a_stop_means(
    reason: StopReason | None, job: dict[str, Any], end: str, error: str | None
) -> None:
    outcome = outcomes.stopped(make_job(**job), plain_handler(), reason, 0.5)
    assert (outcome.state if isinstance(outcome, Finish) else outcome.why) == end
    assert (record_of(outcome)["type"] if error else outcome.error) == error


def test_the_last_failure_is_dead_and_an_earlier_one_is_retried() -> None:
    first, last = failed(ValueError("no")), failed(ValueError("no"), **LAST)
    assert isinstance(first, Return)
    assert (first.why, first.delay_s) == ("retry", 7.0)
    assert isinstance(last, Finish)
    assert last.state == "dead"
    assert (record_of(first)["attempt"], record_of(last)["attempt"]) == (1, 5)


def test_a_permanent_failure_is_dead_at_once() -> None:
    outcome = failed(PermanentFailure("no such mailbox"))
    assert isinstance(outcome, Finish)
    assert outcome.state == "dead"
    assert record_of(outcome)["type"] == "PermanentFailure"


@pytest.mark.parametrize(("after_s", "expected_s"), [(3, 3.0), (None, 7.0), (-1, 60.0)])
def test_a_temporary_failure_waits_as_long_as_it_says(
    after_s: float | None, expected_s: float
) -> None:
    outcome = failed(TemporaryFailure("busy", after_s=after_s))
    assert isinstance(outcome, Return)
    assert (outcome.why, outcome.delay_s) == ("retry", expected_s)
    assert isinstance(failed(TemporaryFailure("busy", after_s=after_s), **LAST), Finish)


class Circle(list[object]):
    """Contains itself."""

    def __init__(self) -> None:
        super().__init__()
        self.append(self)


@pytest.mark.parametrize(
    "result",
    [
        "x" * RESULT_MAX_BYTES,
        object(),
        Circle(),
        {(1, 2): 3},
        "\ud800",
        {"deep": ["\udfff"]},
        msgspec.Raw(b"\xff"),
        msgspec.Raw(b'{"broken \\u0000'),
        Snooze,
    ],
    ids=lambda result: type(result).__name__,
)
def test_a_result_that_cannot_be_kept_becomes_a_note_and_a_warning(
    result: object, caplog: pytest.LogCaptureFixture
) -> None:
    outcome = returned(result)
    assert isinstance(outcome, Finish)
    assert outcome.state == "succeeded"
    assert outcome.result is not None
    assert len(outcome.result) <= RESULT_MAX_BYTES
    assert msgspec.json.decode(outcome.result)["chronos_result"].startswith("dropped")
    [warning] = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert vars(warning)["job"] == str(outcome.job.id)


def test_a_nul_in_a_result_is_replaced() -> None:
    outcome = returned({"k\x00": ["a\x00b", 1]})
    assert isinstance(outcome, Finish)
    assert outcome.result is not None
    assert msgspec.json.decode(outcome.result) == {"k\ufffd": ["a\ufffdb", 1]}


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class Confused(Exception):
    def __str__(self) -> str:
        return 7  # type: ignore[return-value]  # noqa: PLE0307 - that is the point.


class Endless(Exception):
    def __str__(self) -> str:
        return str(self)


@pytest.mark.parametrize("error", [Mute(), Confused(), Endless()], ids=repr)
def test_an_exception_that_cannot_be_put_in_words_is_named(error: Exception) -> None:
    record = record_of(failed(error))
    assert record["type"] == type(error).__name__
    assert type(error).__name__ in record["message"]


@pytest.mark.parametrize("text", ["a\x00b", "\ud800", "a\udfffb", "\x00" * 10_000])
def test_text_that_postgres_refuses_is_replaced(text: str) -> None:
    record = record_of(failed(ValueError(text)))
    assert not UNSTORABLE.search(record["message"] + record["traceback"])


def test_a_megabyte_of_message_is_cut_in_the_middle() -> None:
    record = record_of(failed(ValueError("start " + "x" * 1_000_000 + " end")))
    assert len(record["message"]) <= MESSAGE_MAX_CHARS
    assert len(record["traceback"]) <= TRACEBACK_MAX_CHARS
    assert record["message"].startswith("start ")
    assert record["message"].endswith(" end")


def test_the_traceback_names_the_line_that_raised() -> None:
    with pytest.raises(KeyError) as caught:
        raise KeyError("lost")
    record = record_of(failed(caught.value))
    assert record["type"] == "KeyError"
    assert 'raise KeyError("lost")' in record["traceback"]


def chain(length: int, link: str) -> BaseException:
    error: BaseException = ValueError("first")
    for number in range(length):
        following = ValueError(str(number))
        setattr(following, link, error)
        error = following
    return error


@pytest.mark.parametrize("link", ["__cause__", "__context__"])
def test_a_deep_chain_of_causes_is_cut(link: str) -> None:
    record = record_of(failed(chain(2 * sys.getrecursionlimit(), link)))
    assert record["type"] == "ValueError"
    assert record["traceback"]


def test_a_cause_that_leads_back_to_itself_ends() -> None:
    one, other = ValueError("one"), ValueError("other")
    one.__cause__, other.__cause__ = other, one
    assert record_of(failed(one))["message"] == "one"


def test_groups_within_groups_are_cut() -> None:
    error: Exception = Mute()
    for _ in range(2 * sys.getrecursionlimit()):
        error = ExceptionGroup("more", [error])
    assert record_of(failed(error))["type"] == "ExceptionGroup"


def test_an_endless_recursion_is_recorded() -> None:
    def fall() -> None:
        fall()

    with pytest.raises(RecursionError) as caught:
        fall()
    assert record_of(failed(caught.value))["type"] == "RecursionError"


def test_a_name_without_bounds_is_cut() -> None:
    kind: type[Exception] = type("X" * 10_000, (Exception,), {})
    assert len(record_of(failed(kind()))["type"]) <= 200


def test_a_failure_is_logged_with_the_job_it_belongs_to(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    outcome = failed(ValueError("no"), attempt=3)
    [line] = caplog.records
    fields = vars(line)
    assert (fields["job"], fields["kind"], fields["attempt"]) == (str(outcome.job.id), "work", 3)


def test_a_broken_backoff_is_told(caplog: pytest.LogCaptureFixture) -> None:
    handler = plain_handler(backoff=lambda attempt: -1.0)
    outcome = outcomes.failed(make_job(), handler, ValueError("no"), 0.5)
    assert isinstance(outcome, Return)
    assert outcome.delay_s == 60.0
    assert "backoff of work failed" in caplog.text
