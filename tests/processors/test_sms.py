"""What a provider answers decides what becomes of a text message; what it says goes nowhere."""

import base64
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from typing import Any
from urllib.parse import parse_qs

import anyio
import msgspec
import pytest
import trustme
from anyio.abc import ByteStream

from chronos_runtime.config import Config
from chronos_runtime.errors import (
    ConfigError,
    PermanentFailure,
    ProcessorFailure,
    TemporaryFailure,
)
from chronos_runtime.failure import failure_record
from chronos_runtime.ids import new_job_id
from chronos_runtime.processors.sms import Sms
from chronos_runtime.processors.sms_http import HttpSmsProvider
from chronos_runtime.processors.sms_message import SmsMessage
from tests.processors.conftest import make_task
from tests.processors.receiver import Detour, Receiver, answer

SOON_S = 5.0
TOKEN = "canary-t0ken"
NUMBER = "+4915112345678"
TEXT = "Your code is canary-4711."
HELLO = SmsMessage(to=NUMBER, text=TEXT)

# As the providers document them.
TWILIO = {
    "format": "form",
    "body": {"To": "{to}", "From": "{sender}", "Body": "{text}"},
    "username": "AC0123456789",
    "password": "env:SMS_TOKEN",
    "id_path": "sid",
}
VONAGE = {
    "format": "form",
    "body": {
        "api_key": "{secret.token}",
        "api_secret": "{secret.token}",
        "to": "{to}",
        "from": "{sender}",
        "text": "{text}",
        "client-ref": "{id}",
    },
    "secrets": {"token": "env:SMS_TOKEN"},
    "id_path": "messages.0.message-id",
    "status_path": "messages.0.status",
    "status_success": ["0"],
    "status_permanent": ["3", "6", "7"],
}
MESSAGEBIRD = {
    "headers": {"Authorization": "AccessKey {secret.token}"},
    "body": {"originator": "{sender}", "recipients": ["{to}"], "body": "{text}", "n": 1},
    "secrets": {"token": "env:SMS_TOKEN"},
    "id_path": "id",
}

MakeSms = Callable[..., Sms]


@pytest.fixture
async def make_sms() -> AsyncIterator[MakeSms]:
    """Makes processors of `[sms]` settings for a receiver, closed afterwards."""
    made: list[Sms] = []

    def make(receiver: Receiver | int, **settings: Any) -> Sms:
        port = receiver if isinstance(receiver, int) else receiver.port
        options = settings.pop("options", {})
        given = {
            "url": f"http://127.0.0.1:{port}/send",
            "allow": [f"127.0.0.1:{port}"],
            "sender": "Shop",
        }
        config = Config.of({"sms": given | settings}).sms
        made.append(Sms(HttpSmsProvider(config, environ={"SMS_TOKEN": TOKEN}, **options)))
        return made[-1]

    yield make
    for sms in made:
        await sms.aclose()


def created(tree: object, status: int = 201) -> bytes:
    return answer(status, "Content-Type: application/json", body=msgspec.json.encode(tree))


async def outcome_of(sms: Sms, message: SmsMessage = HELLO) -> tuple[str, bool, str]:
    with anyio.fail_after(SOON_S), pytest.raises(ProcessorFailure) as caught:
        await sms(make_task(), message)
    failure = caught.value
    return failure.outcome, isinstance(failure, PermanentFailure), str(failure)


async def test_a_message_goes_as_twilio_wants_it(receiver: Receiver, make_sms: MakeSms) -> None:
    receiver.answers = [created({"sid": "SM1", "body": TEXT, "to": NUMBER})]
    task = make_task()
    got = await make_sms(receiver, **TWILIO)(task, HELLO)
    assert got == {"provider_id": "SM1", "answer": "201 Created"}
    (request,) = receiver.received
    assert request.line == "POST /send HTTP/1.1"
    assert request.headers["content-type"] == "application/x-www-form-urlencoded"
    assert request.headers["idempotency-key"] == str(task.id)
    kind, _, pair = request.headers["authorization"].partition(" ")
    assert (kind, base64.b64decode(pair).decode()) == ("Basic", f"AC0123456789:{TOKEN}")
    assert parse_qs(request.body.decode()) == {"To": [NUMBER], "From": ["Shop"], "Body": [TEXT]}


async def test_a_message_goes_as_messagebird_wants_it(
    receiver: Receiver, make_sms: MakeSms
) -> None:
    receiver.answers = [created({"id": "mb-1"})]
    message = SmsMessage(to=NUMBER, text=TEXT, sender="+49301234")
    got = await make_sms(receiver, method="put", **MESSAGEBIRD)(make_task(), message)
    assert got == {"provider_id": "mb-1", "answer": "201 Created"}
    (request,) = receiver.received
    assert request.line == "PUT /send HTTP/1.1"
    assert request.headers["authorization"] == f"AccessKey {TOKEN}"
    assert msgspec.json.decode(request.body) == {
        "originator": "+49301234",
        "recipients": [NUMBER],
        "body": TEXT,
        "n": 1,
    }


@pytest.mark.parametrize(
    ("status", "outcome", "is_permanent"),
    [("0", None, False), ("1", "deferred", False), ("3", "rejected", True)],
)
async def test_a_provider_that_always_answers_200_is_judged_by_its_own_status(
    status: str, outcome: str | None, is_permanent: bool, receiver: Receiver, make_sms: MakeSms
) -> None:
    told = {"status": status, "message-id": "v-1", "error-text": TEXT, "to": NUMBER}
    receiver.answers = [created({"messages": [told]}, 200)]
    sms, task = make_sms(receiver, **VONAGE), make_task()
    if outcome is None:
        assert await sms(task, HELLO) == {"provider_id": "v-1", "answer": "200 OK"}
        form = parse_qs(receiver.received[0].body.decode())
        assert form["api_secret"] == [TOKEN]
        assert form["client-ref"] == [str(task.id)]
        return
    got, got_permanent, reason = await outcome_of(sms)
    assert (got, got_permanent) == (outcome, is_permanent)
    assert reason == f"127.0.0.1 answered 200 OK with status '{status}'"


async def test_a_status_of_its_own_that_is_missing_leaves_it_open(
    receiver: Receiver, make_sms: MakeSms
) -> None:
    receiver.answers = [answer(200, body=b"<html>")]
    assert (await outcome_of(make_sms(receiver, **VONAGE)))[:2] == ("unconfirmed", False)


@pytest.mark.parametrize(
    ("status", "outcome", "is_permanent"),
    [
        (301, "redirected", False),
        (400, "rejected", True),
        (401, "auth_failed", False),
        (402, "auth_failed", False),
        (403, "auth_failed", False),
        (404, "client_error", False),
        (408, "client_error", False),
        (413, "rejected", True),
        (422, "rejected", True),
        (429, "throttled", False),
        (500, "server_error", False),
        (503, "server_error", False),
    ],
)
async def test_only_what_blames_the_message_is_for_good(
    status: int, outcome: str, is_permanent: bool, receiver: Receiver, make_sms: MakeSms
) -> None:
    receiver.answers = [created({"message": TEXT}, status)]
    got, got_permanent, reason = await outcome_of(make_sms(receiver))
    assert (got, got_permanent) == (outcome, is_permanent)
    assert reason.startswith(f"127.0.0.1 answered {status} ")


async def test_which_statuses_mean_what_can_be_said(receiver: Receiver, make_sms: MakeSms) -> None:
    sms = make_sms(receiver, success=[202], permanent=[404])
    receiver.answers = [answer(202), answer(200), answer(404), answer(400)]
    assert await sms(make_task(), HELLO) == {"provider_id": None, "answer": "202 Accepted"}
    assert [(await outcome_of(sms))[1] for _ in range(3)] == [False, True, False]


async def test_a_provider_that_asks_for_time_gets_it(receiver: Receiver, make_sms: MakeSms) -> None:
    receiver.answers = [answer(429, "Retry-After: 120")]
    with pytest.raises(TemporaryFailure) as caught:
        await make_sms(receiver)(make_task(), HELLO)
    assert (caught.value.outcome, caught.value.after_s) == ("throttled", 120.0)


async def test_the_key_for_idempotency_is_the_same_in_every_attempt(
    receiver: Receiver, make_sms: MakeSms
) -> None:
    receiver.answers = [answer(500), answer(200)]
    sms, id = make_sms(receiver, idempotency_header="X-Request-Id"), new_job_id()
    with pytest.raises(TemporaryFailure):
        await sms(make_task(1, id), HELLO)
    await sms(make_task(2, id), HELLO)
    assert [got.headers["x-request-id"] for got in receiver.received] == [str(id)] * 2
    assert receiver.received[0].body == receiver.received[1].body


async def test_a_provider_that_does_not_answer_may_have_sent_it(
    receiver: Receiver, make_sms: MakeSms
) -> None:
    async def never(stream: ByteStream) -> None:
        await anyio.sleep_forever()

    async def hang_up(stream: ByteStream) -> None:
        await stream.aclose()

    receiver.answers = [never, hang_up]
    sms = make_sms(receiver, timeout_s=0.2)
    for words in ("no answer within 0.2 s", ""):
        outcome, is_permanent, reason = await outcome_of(sms)
        assert (outcome, is_permanent) == ("unconfirmed", False)
        assert words in reason
        assert reason.endswith("; it may have been sent")


async def test_a_status_stands_whatever_becomes_of_the_rest(
    receiver: Receiver, make_sms: MakeSms
) -> None:
    async def break_off(stream: ByteStream) -> None:
        await stream.send(b"HTTP/1.1 201 Created\r\nContent-Length: 100\r\n\r\n{")
        await stream.aclose()

    receiver.answers = [break_off, answer(201, body=b"x" * 100_000), answer(201, body=b"{")]
    for _ in range(3):
        got = await make_sms(receiver, id_path="id")(make_task(), HELLO)
        assert got == {"provider_id": None, "answer": "201 Created"}


async def test_a_provider_that_is_down_is_unreachable_until_it_is_up_again(
    make_sms: MakeSms,
) -> None:
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        sms = make_sms(port)
        for _ in range(3):
            assert (await outcome_of(sms))[:2] == ("unreachable", False)
    async with Receiver().serve(port=port) as receiver:
        await sms(make_task(), HELLO)
    assert len(receiver.received) == 1


async def test_tls_is_checked_by_the_name_and_a_bad_certificate_is_refused(
    make_sms: MakeSms,
) -> None:
    authority = trustme.CA()
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("sms.example.org").configure_cert(server)
    client = ssl.create_default_context()
    authority.configure_trust(client)

    async def resolve(host: str, port: int) -> list[str]:
        return ["93.184.215.14"]

    async with Receiver().serve(server) as receiver:
        detour = Detour(receiver.port)
        for context, host, is_good in (
            (client, "sms.example.org", True),
            (client, "other.example.org", False),
            (ssl.create_default_context(), "sms.example.org", False),
        ):
            options = {"resolve": resolve, "network": detour, "ssl_context": context}
            sms = make_sms(receiver, url=f"https://{host}/send", allow=[], options=options)
            if is_good:
                await sms(make_task(), HELLO)
                continue
            outcome, is_permanent, reason = await outcome_of(sms)
            assert (outcome, is_permanent) == ("unreachable", False)
            assert "its certificate is not good" in reason
    assert len(receiver.received) == 1


async def test_a_provider_whose_name_leads_inside_is_not_dialled(make_sms: MakeSms) -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return ["10.0.0.1"]

    detour = Detour(None)
    options = {"resolve": resolve, "network": detour}
    sms = make_sms(443, url="https://sms.example.org/", allow=[], options=options)
    outcome, is_permanent, reason = await outcome_of(sms)
    assert (outcome, is_permanent) == ("refused", False)
    assert "list it in sms.allow" in reason
    assert detour.dialled == []


HOSTILE = [
    '", "to": "+15550000000", "x": "',
    "\\",
    '\\"}',
    "&To=%2B15550000000&Body=x",
    "{to}{secret.token}{id}",
    "{{to}}",
    "{secret.token}",
    "%(to)s ${to} $to {0} {to.__class__}",
    "Zeile 1\nZeile 2",
    "<script>",
    "\u2028 grüße \U0001f600 \u202e",
    "a=b;c=d",
    "+%2B%00",
]


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
@pytest.mark.parametrize("provider", [TWILIO, MESSAGEBIRD], ids=["form", "json"])
async def test_a_text_says_what_it_says_and_nothing_else(
    text: str, provider: dict[str, Any], receiver: Receiver, make_sms: MakeSms
) -> None:
    await make_sms(receiver, **provider)(make_task(), SmsMessage(to=NUMBER, text=text))
    (request,) = receiver.received
    if provider is TWILIO:
        form = parse_qs(request.body.decode(), strict_parsing=True)
        assert form == {"To": [NUMBER], "From": ["Shop"], "Body": [text]}
    else:
        tree = msgspec.json.decode(request.body)
        assert (tree["recipients"], tree["body"], set(tree)) == (
            [NUMBER],
            text,
            {"originator", "recipients", "body", "n"},
        )
    assert TOKEN.encode() not in request.body


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"to": "0151 12345678"}, "to: "),
        ({"to": "+49 151 12345678"}, "to: "),
        ({"to": "+0151123456"}, "to: "),
        ({"to": "+1"}, "to: "),
        ({"to": "+1" + "5" * 15}, "to: "),
        ({"to": "+٤٩١٥١١٢٣٤"}, "to: "),
        ({"to": f"{NUMBER}\n"}, "to: "),
        ({"to": f"{NUMBER},+15550000000"}, "to: "),
        ({"to": [NUMBER]}, "Expected `str`"),
        ({"text": ""}, "text: "),
        ({"text": "x" * 1_601}, "text: "),
        ({"text": "a\x00b"}, "text: "),
        ({"text": "a\rb"}, "text: "),
        ({"text": "a\x1bb"}, "text: "),
        ({"sender": "A" * 12}, "sender: "),
        ({"sender": "Shop\n"}, "sender: "),
        ({"sender": "Shöp"}, "sender: "),
        ({"sender": "12"}, "sender: "),
        ({"sender": ""}, "sender: "),
        ({"wat": 1}, "Object contains unknown field"),
    ],
    ids=lambda value: ascii(value)[:30],
)
def test_what_is_no_message_is_refused_by_its_field_and_not_repeated(
    wrong: dict[str, Any], field: str
) -> None:
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert({"to": NUMBER, "text": TEXT} | wrong, SmsMessage)
    text = str(caught.value)
    assert text.startswith(field)
    assert "+49 151" not in text.replace(NUMBER, "")
    assert "0151" not in text


@pytest.mark.parametrize(
    ("settings", "trouble"),
    [
        ({"url": "ftp://example.org"}, "sms.url: must be https://"),
        ({"url": "https://127.0.0.1:1/"}, "sms.url: 127.0.0.1 is not a public address"),
        ({"url": "http://example.org/"}, "sms.url: example.org may be reached by https only"),
        ({"body": {"to": "{two}"}}, r"sms.body: \{two\} stands for nothing"),
        ({"body": {"to": "{to"}}, r"sms.body: \{ stands for nothing"),
        ({"body": {"{to}": "x"}}, r"sms.body: \{to\} stands for nothing; there are none here"),
        ({"body": {"to": "{to.__class__}"}}, r"sms.body: \{to.__class__\} stands for nothing"),
        ({"body": {"a": [{"b": "{secret.none}"}]}}, r"sms.body: \{secret.none\} stands"),
        ({"body": {"a": {"b": "c"}}, "format": "form"}, "sms.body: 'a' is a table"),
        ({"headers": {"X": "{text}"}}, r"sms.headers: \{text\} stands for nothing"),
        ({"headers": {"Host": "x"}}, "sms.headers: Host is not yours"),
        ({"headers": {"X": "a\r\nHost: x"}}, "sms.headers: the value of X"),
        ({"idempotency_header": "a b"}, "sms.headers: 'a b' is no name"),
        ({"secrets": {"token": "env:NOWHERE"}}, "sms.secrets: 'token' is to be read from"),
        ({"username": "a", "password": "env:NOWHERE"}, "sms.password is to be read from"),
        ({"sender": "Ä"}, "sms.sender: must be a number"),
        ({"allow": ["10.0.0.1/8"]}, "sms.allow: "),
    ],
    ids=str,
)
async def test_settings_that_cannot_work_are_refused_at_the_start(
    settings: dict[str, Any], trouble: str, make_sms: MakeSms
) -> None:
    with pytest.raises(ConfigError, match=f"^{trouble}"):
        make_sms(443, **({"allow": [], "url": "https://example.org/"} | settings))


async def test_a_secret_with_a_line_break_cannot_stand_in_a_header(make_sms: MakeSms) -> None:
    config = Config.of({"sms": {"url": "https://example.org/", **MESSAGEBIRD}}).sms
    with pytest.raises(ConfigError, match="'token' is not printable ASCII"):
        HttpSmsProvider(config, environ={"SMS_TOKEN": "a\r\nHost: b"})


async def test_a_message_without_a_sender_needs_one_only_if_the_provider_does(
    receiver: Receiver, make_sms: MakeSms
) -> None:
    assert (await outcome_of(make_sms(receiver, sender="")))[:2] == ("invalid", True)
    assert receiver.received == []
    service = {"to": "{to}", "service": "MG1", "text": "{text}"}
    await make_sms(receiver, sender="", body=service)(make_task(), HELLO)
    assert len(receiver.received) == 1


async def test_no_token_number_or_word_of_a_message_is_logged_or_kept_in_an_error(
    receiver: Receiver, make_sms: MakeSms, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    echo = {"message": TEXT, "to": NUMBER, "token": TOKEN, "id": f"id-{TOKEN}"}
    leaks: list[object] = []
    sms = make_sms(receiver, timeout_s=0.2, **MESSAGEBIRD)
    for status in (400, 401, 429, 500, 302):
        receiver.answers = [created(echo, status)]
        with pytest.raises(ProcessorFailure) as caught:
            await sms(make_task(), HELLO)
        leaks.append(failure_record(caught.value, attempt=1, worker="w"))
    receiver.answers = [created(echo)]
    leaks.append(await sms(make_task(), HELLO))
    ours = [record for record in caplog.records if record.name.startswith("chronos_runtime")]
    assert len(ours) == 5
    leaks += [vars(record) for record in ours]
    shown = str(leaks)
    for secret in (TOKEN, NUMBER, NUMBER[1:], "4711"):
        assert secret not in shown


class Printer:
    """A provider of somebody's own."""

    def __init__(self) -> None:
        self.printed: list[SmsMessage] = []
        self.is_closed = False

    async def send(self, id: object, message: SmsMessage) -> object:
        self.printed.append(message)
        return {"printed": str(id)}

    async def aclose(self) -> None:
        self.is_closed = True


async def test_any_provider_can_be_a_processor() -> None:
    printer = Printer()
    sms, task = Sms(printer), make_task()
    assert await sms(task, HELLO) == {"printed": str(task.id)}
    await sms.aclose()
    assert (printer.printed, printer.is_closed) == ([HELLO], True)
