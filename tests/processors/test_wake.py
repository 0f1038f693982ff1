"""What a receiver answers decides what becomes of a wake, and nothing it writes is kept."""

import logging
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import msgspec
import pytest

from chronos_runtime.errors import DeliveryFailed, PayloadError
from chronos_runtime.failure import failure_record
from chronos_runtime.job import Discard, Job, Retry
from chronos_runtime.metrics import Metrics
from chronos_runtime.payload import encode_payload
from chronos_runtime.processor_config import WakeConfig
from chronos_runtime.processors.headers import HEADERS_MAX
from chronos_runtime.processors.verdict import OUTCOMES, judge
from chronos_runtime.processors.wake import Wake, wake_handler
from chronos_runtime.processors.wake_payload import (
    WAKE_KIND,
    WakePayload,
    wake_body,
    wake_rules,
)
from tests.processors.conftest import MakeWake, make_job
from tests.processors.receiver import Receiver, answer

CANARY = "canary-token"
NOW = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def wake(receiver: Receiver, make_wake: MakeWake, metrics: Metrics) -> Wake:
    return make_wake({"allow": [f"127.0.0.1:{receiver.port}"]}, metrics=metrics)


@pytest.fixture
def payload(receiver: Receiver) -> WakePayload:
    url = f"http://127.0.0.1:{receiver.port}/{CANARY}?key={CANARY}"
    return WakePayload(url=url, body={"order": 7})


def counted(metrics: Metrics) -> dict[str, float]:
    """The outcomes that there were."""
    by_outcome = {
        outcome: metrics.registry.get_sample_value(
            "chronos_wake_deliveries_total", {"outcome": outcome}
        )
        for outcome in OUTCOMES
    }
    return {outcome: count for outcome, count in by_outcome.items() if count}


def test_every_outcome_begins_at_zero(metrics: Metrics) -> None:
    Wake(WakeConfig(), metrics)
    for outcome in OUTCOMES:
        labels: dict[str, str] = {"outcome": outcome}
        assert metrics.registry.get_sample_value("chronos_wake_deliveries_total", labels) == 0


@pytest.mark.parametrize("status", [200, 201, 202, 204, 226, 299])
async def test_any_2xx_is_success(
    status: int, receiver: Receiver, wake: Wake, payload: WakePayload, metrics: Metrics
) -> None:
    receiver.answers = [answer(status)]
    result = await wake(make_job(), payload)
    assert isinstance(result, dict)
    assert result["answer"].startswith(str(status))
    assert counted(metrics) == {"succeeded": 1}
    seconds = metrics.registry.get_sample_value("chronos_wake_delivery_seconds_count")
    assert seconds == 1


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (304, "redirected"),
        (400, "client_error"),
        (401, "client_error"),
        (404, "client_error"),
        (422, "client_error"),
        (429, "throttled"),
        (499, "client_error"),
        (500, "server_error"),
        (502, "server_error"),
        (503, "server_error"),
        (599, "server_error"),
        (600, "invalid_answer"),
        (999, "invalid_answer"),
    ],
)
async def test_any_other_status_is_a_failed_attempt(
    status: int, outcome: str, receiver: Receiver, wake: Wake, payload: WakePayload
) -> None:
    receiver.answers = [answer(status)]
    with pytest.raises(DeliveryFailed, match=f"^{outcome}: 127.0.0.1: {status}"):
        await wake(make_job(), payload)
    assert counted(wake._metrics) == {outcome: 1}


@pytest.mark.parametrize("status", [400, 413, 429, 500, 503])
async def test_a_receiver_that_asks_for_time_gets_it(
    status: int, receiver: Receiver, wake: Wake, payload: WakePayload, metrics: Metrics
) -> None:
    receiver.answers = [answer(status, "retry-After: 120")]
    decision = await wake(make_job(), payload)
    assert isinstance(decision, Retry)
    assert decision.after_s == 120.0
    assert decision.reason.startswith(f"throttled: 127.0.0.1 answered {status}")
    assert counted(metrics) == {"throttled": 1}


@pytest.mark.parametrize(
    ("text", "after_s"),
    [
        ("7", 7.0),
        (" 7 ", 7.0),
        ("0", 1.0),
        ("3600", 3_600.0),
        ("9" * 400, 3_600.0),
        (format_datetime(NOW + timedelta(seconds=90), usegmt=True), 90.0),
        (format_datetime(NOW - timedelta(seconds=90), usegmt=True), 1.0),
        (format_datetime(NOW + timedelta(days=900), usegmt=True), 3_600.0),
        ("Tue, 01 Jan 2030 00:00:30 -0000", 30.0),
        ("-5", None),
        ("1.5", None),
        ("soon", None),
        ("٣", None),
        ("", None),
        (None, None),
    ],
)
def test_retry_after_has_two_forms_and_two_bounds(text: str | None, after_s: float | None) -> None:
    verdict = judge(503, text, now=NOW, retry_after_max_s=3_600)
    assert verdict.after_s == after_s


async def test_a_receiver_that_is_gone_is_given_up_and_whoever_wants_to_know_is_told(
    receiver: Receiver, make_wake: MakeWake, payload: WakePayload
) -> None:
    told: list[tuple[Job, WakePayload]] = []

    async def gone(job: Job, payload: WakePayload) -> None:
        told.append((job, payload))

    receiver.answers = [answer(410, "Retry-After: 5")]
    wake = make_wake({"allow": [f"127.0.0.1:{receiver.port}"]}, gone=gone)
    job = make_job()
    assert await wake(job, payload) == Discard("gone: 127.0.0.1 answered 410 Gone")
    assert told == [(job, payload)]


async def test_what_a_receiver_writes_and_what_a_url_holds_is_kept_nowhere(
    receiver: Receiver, wake: Wake, payload: WakePayload, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    leaks: list[object] = []
    for status in (200, 302, 410, 429, 500):
        line = f"HTTP/1.1 {status} {CANARY}\r\nContent-Length: 12\r\nX: {CANARY}\r\n"
        receiver.answers = [f"{line}Retry-After: 5\r\n\r\n{CANARY}".encode()]
        try:
            leaks.append(await wake(make_job(), payload))
        except DeliveryFailed as error:
            leaks.append(failure_record(error, attempt=1, worker="w"))
    assert len(leaks) == 5
    ours = [record for record in caplog.records if record.name.startswith("chronos_runtime")]
    assert len(ours) == 4
    for record in ours:
        assert vars(record)["host"] == "127.0.0.1"
        leaks.append(vars(record))
    assert CANARY not in str(leaks)


async def test_headers_of_the_payload_are_sent_and_ours_stand(
    receiver: Receiver, wake: Wake, payload: WakePayload
) -> None:
    mine = {"Authorization": "Bearer x", "X-Tenant": "a b"}
    await wake(make_job(), msgspec.structs.replace(payload, headers=mine))
    (got,) = receiver.received
    assert (got.headers["authorization"], got.headers["x-tenant"]) == ("Bearer x", "a b")
    assert got.headers["host"] == f"127.0.0.1:{receiver.port}"
    assert got.headers["user-agent"].startswith("chronos-runtime/")
    assert got.line == f"POST /{CANARY}?key={CANARY} HTTP/1.1"


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "internal"},
        {"content-length": "0"},
        {"Transfer-Encoding": "chunked"},
        {"Connection": "close"},
        {"webhook-id": "forged"},
        {"Webhook-Signature": "v1,forged"},
        {"Proxy-Authorization": "x"},
        {"Content-Type": "text/plain"},
        {"Chronos-Attempt": "9"},
        {"X\r\nHost": "x"},
        {"X:": "x"},
        {"": "x"},
        {"X": "a\r\nHost: b"},
        {"X": "a\x07"},
        {"X": "ü"},
        {"X": " a"},
        {"X": ""},
        {"X": "a" * 1_001},
        {f"X-{number}": "a" for number in range(HEADERS_MAX + 1)},
        {"X-Order": "7", "x-order": "8"},
    ],
    ids=lambda headers: str(headers)[:30],
)
def test_headers_that_are_ours_or_none_are_refused_at_enqueue(headers: dict[str, str]) -> None:
    with pytest.raises(PayloadError, match="headers: "):
        enqueued(url="https://example.org/", headers=headers)


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"url": "https://user@example.org/"}, "url: "),
        ({"url": "https://127.1/"}, "url: "),
        ({"url": "ftp://example.org/"}, "url: "),
        ({"url": 7}, r"\$\.url"),
        ({"secret": ""}, r"\$\.secret"),
        ({"timeout_s": 0}, r"\$\.timeout_s"),
        ({"timeout_s": 301}, r"\$\.timeout_s"),
        ({"occurrence": "2030-01-01T00:00:00"}, "occurrence: "),
        ({"wat": 1}, "unknown field `wat`"),
    ],
    ids=str,
)
def test_a_payload_that_makes_no_wake_is_refused_at_enqueue(wrong: Any, field: str) -> None:
    with pytest.raises(PayloadError, match=field):
        enqueued(**({"url": "https://example.org/"} | wrong))


def enqueued(**payload: object) -> str:
    return encode_payload(WAKE_KIND, payload, wake_rules().decode)


def test_the_body_tells_what_happened_and_when() -> None:
    payload = WakePayload(
        url="https://example.org/",
        body=[1, None],
        alarm="nightly",
        occurrence=datetime(2030, 1, 1, 2, tzinfo=UTC),
    )
    job = make_job()
    body = msgspec.json.decode(wake_body(job, payload))
    assert body == {
        "type": "chronos.wake",
        "timestamp": "2030-01-01T02:00:00Z",
        "data": {
            "job": str(job.id),
            "alarm": "nightly",
            "occurrence": "2030-01-01T02:00:00Z",
            "payload": [1, None],
        },
    }


def test_a_wake_has_a_topic_of_its_own_and_the_usual_ladder() -> None:
    handler = wake_handler(Wake(WakeConfig(), Metrics()))
    assert (handler.kind, handler.topic, handler.max_attempts) == ("chronos.wake", "chronos", 5)
    assert 30 <= handler.backoff(1) <= 33
    assert 900 <= handler.backoff(9) <= 990
