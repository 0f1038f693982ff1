"""E-mails and text messages from the enqueue to the provider and into the history, by a worker."""

from collections.abc import AsyncIterator, Iterator
from email import message_from_bytes
from typing import Any
from uuid import UUID

import asyncpg
import msgspec
import pytest

from chronos_runtime import (
    Chronos,
    Client,
    Config,
    EmailMessage,
    Job,
    PayloadError,
    Runtime,
    Sms,
    SmsMessage,
)
from chronos_runtime.errors import ConfigError
from tests.actors.bench import sample
from tests.eventually import eventually
from tests.processors.mail_server import PASSWORD, USER, MailServer
from tests.processors.receiver import Receiver, answer
from tests.test_runtime import ended, make_config, working

HELLO: dict[str, Any] = {"to": "ada@example.org", "subject": "Hello", "text": "Hello, Ada."}
CODE: dict[str, Any] = {"to": "+4915112345678", "text": "Your code is 4711."}


@pytest.fixture
def app() -> Chronos:
    """An application that has nothing to do with messages."""
    app = Chronos()

    @app.handler("other")
    async def other(job: Job, payload: object) -> None: ...

    return app


@pytest.fixture
async def client(dsn: str, app: Chronos) -> AsyncIterator[Client]:
    async with Client.connect(dsn, app) as client:
        yield client


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[MailServer]:
    monkeypatch.setenv("SMTP_PASSWORD", PASSWORD)
    with MailServer().serve() as server:
        yield server


def mailing(dsn: str, server: MailServer) -> Config:
    email = {
        "host": "localhost",
        "port": server.port,
        "tls": "none",
        "username": USER,
        "password": "env:SMTP_PASSWORD",
        "sender": "Shop <shop@example.org>",
    }
    return make_config(dsn, email=email)


def texting(dsn: str, receiver: Receiver) -> Config:
    allow = [f"127.0.0.1:{receiver.port}"]
    url = f"http://127.0.0.1:{receiver.port}/send"
    return make_config(dsn, sms={"url": url, "allow": allow, "sender": "Shop", "id_path": "id"})


def runs(runtime: Runtime, processor: str, outcome: str) -> float:
    labels = {"processor": processor, "outcome": outcome}
    return sample(runtime.metrics, "chronos_processor_runs_total", **labels)


async def make_due(dsn: str, id: UUID) -> None:
    """Let a job that waits for its next attempt wait no longer."""
    connection = await asyncpg.connect(dsn)
    try:
        done = await connection.execute(
            "update chronos.jobs set run_at = now() where id = $1 and state = 'scheduled'", id
        )
        assert done == "UPDATE 1"
    finally:
        await connection.close()


async def test_an_email_is_enqueued_sent_and_done(
    dsn: str, app: Chronos, client: Client, server: MailServer
) -> None:
    runtime = Runtime(app, mailing(dsn, server))
    async with working(runtime):
        job = await client.enqueue("chronos.email", EmailMessage(**HELLO))
        record = await ended(client, job.id)
    assert (record.state, record.topic, record.attempt) == ("succeeded", "chronos.email", 1)
    message_id = f"<{job.id}@example.org>"
    reply = "250 2.0.0 fine"
    assert record.result == {"message_id": message_id, "reply": reply, "refused": []}
    (mail,) = server.mails
    assert message_from_bytes(mail.content)["Message-ID"] == message_id
    assert runs(runtime, "chronos.email", "succeeded") == 1


async def test_an_email_comes_back_until_the_relay_takes_it_and_is_the_same(
    dsn: str, app: Chronos, client: Client, server: MailServer
) -> None:
    server.replies["DATA"] = ["keep and drop", "250 fine"]
    runtime = Runtime(app, mailing(dsn, server))
    job = await client.enqueue("chronos.email", HELLO)

    async def has_failed() -> bool:
        return (await client.get(job.id)).state == "scheduled"

    async with working(runtime):
        await eventually(has_failed)
    assert runs(runtime, "chronos.email", "unconfirmed") == 1
    await make_due(dsn, job.id)
    async with working(Runtime(app, mailing(dsn, server))):
        record = await ended(client, job.id)
    assert (record.state, record.attempt) == ("succeeded", 2)
    assert "it may have been sent" in str(record.errors[0]["message"])
    ids = [message_from_bytes(mail.content)["Message-ID"] for mail in server.mails]
    assert ids == [f"<{job.id}@example.org>"] * 2


async def test_an_email_that_is_refused_for_good_is_dead_at_once_and_says_why(
    dsn: str, app: Chronos, client: Client, server: MailServer
) -> None:
    server.refused = {"ada@example.org": "550 5.1.1 no such user"}
    runtime = Runtime(app, mailing(dsn, server))
    async with working(runtime):
        job = await client.enqueue("chronos.email", HELLO)
        record = await ended(client, job.id)
    assert (record.state, record.attempt) == ("dead", 1)
    message = "localhost: 550 to its recipient: 5.1.1 no such user"
    assert record.errors[-1]["message"] == message
    assert "aiosmtplib" not in str(record.errors)
    assert runs(runtime, "chronos.email", "rejected") == 1


async def test_a_text_message_is_enqueued_sent_and_done(
    dsn: str, app: Chronos, client: Client, receiver: Receiver
) -> None:
    receiver.answers = [answer(201, body=b'{"id": "p-1"}')]
    runtime = Runtime(app, texting(dsn, receiver))
    async with working(runtime):
        job = await client.enqueue("chronos.sms", SmsMessage(**CODE))
        record = await ended(client, job.id)
    assert (record.state, record.topic, record.attempt) == ("succeeded", "chronos.sms", 1)
    assert record.result == {"provider_id": "p-1", "answer": "201 Created"}
    (got,) = receiver.received
    assert got.headers["idempotency-key"] == str(job.id)
    assert msgspec.json.decode(got.body) == CODE | {"from": "Shop"}
    assert runs(runtime, "chronos.sms", "succeeded") == 1


async def test_a_text_message_comes_back_when_the_provider_wants_it_to(
    dsn: str, app: Chronos, client: Client, receiver: Receiver
) -> None:
    receiver.answers = [answer(503, "Retry-After: 1"), answer(429, "Retry-After: 1"), answer(200)]
    runtime = Runtime(app, texting(dsn, receiver))
    async with working(runtime):
        job = await client.enqueue("chronos.sms", CODE)
        record = await ended(client, job.id)
    assert (record.state, record.attempt) == ("succeeded", 3)
    assert [error["message"] for error in record.errors] == [
        "127.0.0.1 answered 503 Service Unavailable",
        "127.0.0.1 answered 429 Too Many Requests",
    ]
    assert {got.headers["idempotency-key"] for got in receiver.received} == {str(job.id)}
    assert runs(runtime, "chronos.sms", "throttled") == 2


async def test_a_text_message_that_is_refused_for_good_is_dead_at_once_and_says_why(
    dsn: str, app: Chronos, client: Client, receiver: Receiver
) -> None:
    receiver.answers = [answer(422, body=b'{"error": "+4915112345678 is no mobile"}')]
    runtime = Runtime(app, texting(dsn, receiver))
    async with working(runtime):
        job = await client.enqueue("chronos.sms", CODE)
        record = await ended(client, job.id)
    assert (record.state, record.attempt) == ("dead", 1)
    assert record.errors[-1]["message"] == "127.0.0.1 answered 422 Unprocessable Entity"
    assert "4915112345678" not in str(record.errors)
    assert runs(runtime, "chronos.sms", "rejected") == 1


async def test_a_provider_of_ones_own_is_a_processor_like_another(
    dsn: str, app: Chronos, client: Client
) -> None:
    class Printer:
        async def send(self, id: UUID, message: SmsMessage) -> object:
            return {"printed": message.text}

        async def aclose(self) -> None: ...

    app.processor("sms.printer")(Sms(Printer()))
    async with working(Runtime(app, make_config(dsn))):
        job = await client.enqueue("sms.printer", CODE)
        record = await ended(client, job.id)
    assert (record.state, record.result) == ("succeeded", {"printed": CODE["text"]})


@pytest.mark.parametrize(
    ("kind", "fine", "wrong", "trouble"),
    [
        ("chronos.email", HELLO, {"subject": "a\r\nBcc: eve@example.org"}, "subject: "),
        ("chronos.email", HELLO, {"to": "ada"}, "to: "),
        ("chronos.sms", CODE, {"to": "0151"}, "to: "),
        ("chronos.sms", CODE, {"text": ""}, "text: "),
    ],
)
async def test_a_message_is_checked_at_enqueue_with_an_app_and_without(
    kind: str, fine: dict[str, Any], wrong: dict[str, Any], trouble: str, client: Client
) -> None:
    for one in (client, Client(client._store)):
        with pytest.raises(PayloadError, match=trouble):
            await one.enqueue(kind, fine | wrong)
        made = one.job(kind, fine)
        assert (made.topic, made.max_attempts) == (kind, 5)
        one.job(kind, {"before_handler": "shop.message", "order": 7})  # Says it later.


def test_a_worker_claims_only_messages_that_it_has_settings_for(
    app: Chronos, server: MailServer
) -> None:
    bare = Runtime(app, Config())
    assert bare.topics == ["chronos", "default"]
    able = Runtime(app, mailing("postgresql://db/app", server))
    assert able.topics == ["chronos", "chronos.email", "default"]
    assert set(able._handlers) - set(bare._handlers) == {"chronos.email"}


@pytest.mark.parametrize(
    ("section", "settings"),
    [
        ("email", {"host": "mail", "username": "a", "password": "env:NOT_SET"}),
        ("sms", {"url": "https://example.org/", "secrets": {"token": "env:NOT_SET"}}),
        ("sms", {"url": "https://example.org/", "body": {"to": "{two}"}}),
    ],
    ids=str,
)
def test_a_worker_does_not_start_with_settings_that_cannot_work(
    section: str, settings: dict[str, Any], app: Chronos
) -> None:
    config = Config.of({section: settings})
    with pytest.raises(ConfigError, match=rf"^{section}\."):
        Runtime(app, config)
