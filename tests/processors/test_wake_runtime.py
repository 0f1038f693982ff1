"""A wake from the enqueue to the receiver and into the history, by a whole worker."""

import base64
import os
from collections.abc import AsyncIterator
from typing import Any

import pytest
from standardwebhooks import Webhook

from chronos_runtime import Chronos, Client, Config, Job, PayloadError, Runtime
from chronos_runtime.errors import ConfigError, InputError
from chronos_runtime.processors.wake_payload import WAKE_KIND, WakePayload
from tests.processors.receiver import Receiver, answer
from tests.test_runtime import ended, make_config, working

SECRET = "whsec_" + base64.b64encode(os.urandom(32)).decode()


@pytest.fixture
def app() -> Chronos:
    """An application that has nothing to do with wakes."""
    app = Chronos()

    @app.handler("other")
    async def other(job: Job, payload: object) -> None: ...

    return app


@pytest.fixture
async def client(dsn: str, app: Chronos) -> AsyncIterator[Client]:
    async with Client.connect(dsn, app) as client:
        yield client


def settings(dsn: str, receiver: Receiver, **sections: dict[str, Any]) -> Config:
    wake = {"allow": [f"localhost:{receiver.port}"], "secrets": {"billing": "env:BILLING"}}
    return make_config(dsn, wake=wake, **sections)


async def test_a_wake_is_enqueued_delivered_and_done(
    dsn: str,
    app: Chronos,
    client: Client,
    receiver: Receiver,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("BILLING", SECRET)
    runtime = Runtime(app, settings(dsn, receiver))
    url = f"http://localhost:{receiver.port}/hook"
    async with working(runtime):
        job = await client.enqueue(WAKE_KIND, WakePayload(url=url, body={"n": 1}, secret="billing"))
        record = await ended(client, job.id)
    assert (record.state, record.topic, record.attempt) == ("succeeded", "chronos", 1)
    assert record.result == {"answer": "204 No Content"}
    (got,) = receiver.received
    message = Webhook(SECRET).verify(got.body, got.headers)
    assert message["data"] == {"job": str(job.id), "payload": {"n": 1}}
    assert "chronos.wake" not in app.handlers
    assert runtime._builtins._wake._courier._pool is None


async def test_a_wake_comes_back_until_it_arrives_under_the_same_id(
    dsn: str,
    app: Chronos,
    client: Client,
    receiver: Receiver,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("BILLING", SECRET)
    receiver.answers = [answer(500, "Retry-After: 1"), answer(503, "Retry-After: 1"), answer(200)]
    async with working(Runtime(app, settings(dsn, receiver))):
        job = await client.enqueue(WAKE_KIND, {"url": f"http://localhost:{receiver.port}/"})
        record = await ended(client, job.id)
    assert (record.state, record.attempt) == ("succeeded", 3)
    assert [got.headers["webhook-id"] for got in receiver.received] == [str(job.id)] * 3
    assert [error["message"] for error in record.errors] == [
        "throttled: localhost answered 500 Internal Server Error",
        "throttled: localhost answered 503 Service Unavailable",
    ]


async def test_a_wake_that_leads_inside_is_dead_at_once_and_says_why(
    dsn: str, app: Chronos, client: Client, receiver: Receiver
) -> None:
    config = make_config(dsn)
    async with working(Runtime(app, config)):
        job = await client.enqueue(WAKE_KIND, {"url": f"https://127.0.0.1:{receiver.port}/"})
        record = await ended(client, job.id)
    assert (record.state, record.attempt) == ("dead", 1)
    assert "127.0.0.1 is not a public address" in str(record.errors[-1]["message"])
    assert receiver.connections == 0


async def test_a_wake_is_checked_at_enqueue_with_an_app_and_without(
    client: Client, dsn: str
) -> None:
    async with Client.connect(dsn) as bare:
        for one in (client, bare):
            with pytest.raises(PayloadError, match="url: "):
                await one.enqueue(WAKE_KIND, {"url": "https://user@example.org/"})
            made = one.job(WAKE_KIND, {"url": "https://example.org/"})
            assert (made.topic, made.max_attempts) == ("chronos", 5)


def test_kinds_of_our_own_cannot_be_registered(app: Chronos) -> None:
    for kind in ("chronos.wake", "chronos.anything"):
        with pytest.raises(InputError, match=r"^kind: "):
            app.handler(kind)
    app.handler("chronosphere")


def test_a_worker_serves_wakes_unless_it_is_told_its_topics(app: Chronos) -> None:
    assert Runtime(app, Config()).topics == ["chronos", "default"]
    assert Runtime(app, Config(topics=["mail"])).topics == ["mail"]


@pytest.mark.parametrize(
    "wake", [{"secrets": {"billing": "env:NOT_SET"}}, {"allow": ["10.0.0.1/8"]}], ids=str
)
def test_a_worker_does_not_start_with_settings_that_cannot_work(app: Chronos, wake: Any) -> None:
    config = Config.of({"wake": wake})
    with pytest.raises(ConfigError, match=r"^wake\."):
        Runtime(app, config)
