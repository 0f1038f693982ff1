"""Receivers that follow Standard Webhooks can tell our deliveries from anybody else's."""

import base64
import os
from pathlib import Path

import msgspec
import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from chronos_runtime.errors import ConfigError, DeliveryFailed
from chronos_runtime.ids import new_job_id
from chronos_runtime.processors.signing import load_signers
from chronos_runtime.processors.wake import Wake
from chronos_runtime.processors.wake_payload import WakePayload
from tests.processors.conftest import MakeWake, make_job
from tests.processors.receiver import Receiver, answer


def new_secret(size: int = 32) -> str:
    return "whsec_" + base64.b64encode(os.urandom(size)).decode()


NEW, OLD, OTHER = new_secret(), new_secret(), new_secret(24)
ENVIRON = {"NEW": NEW, "OLD": OLD, "OTHER": OTHER}
SECRETS = {"billing": ["env:NEW", "env:OLD"], "shop": "env:OTHER"}


@pytest.fixture
def wake(receiver: Receiver, make_wake: MakeWake) -> Wake:
    allow = [f"127.0.0.1:{receiver.port}"]
    return make_wake({"allow": allow, "secrets": SECRETS}, environ=ENVIRON)


def payload(receiver: Receiver, secret: str | None = "billing") -> WakePayload:
    body = {"text": "grüße \u2028 </script>", "number": 1.0, "big": 2**63}
    return WakePayload(url=f"http://127.0.0.1:{receiver.port}/hook", body=body, secret=secret)


async def test_a_receiver_verifies_a_delivery_by_the_bytes_it_got(
    receiver: Receiver, wake: Wake
) -> None:
    job, sent = make_job(), payload(receiver, "shop")
    assert await wake(job, sent) == {"answer": "204 No Content"}
    (got,) = receiver.received
    message = Webhook(OTHER).verify(got.body, got.headers)
    assert message["type"] == "chronos.wake"
    assert message["data"] == {"job": str(job.id), "payload": sent.body}
    assert got.body == msgspec.json.format(got.body, indent=-1)
    assert got.line == "POST /hook HTTP/1.1"
    assert got.headers["content-type"] == "application/json"
    assert "." not in got.headers["webhook-id"]


async def test_while_secrets_rotate_both_verify_and_no_other(
    receiver: Receiver, wake: Wake
) -> None:
    await wake(make_job(), payload(receiver))
    (got,) = receiver.received
    for secret in (NEW, OLD):
        Webhook(secret).verify(got.body, got.headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(OTHER).verify(got.body, got.headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(NEW).verify(got.body + b" ", got.headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(NEW).verify(got.body, got.headers | {"webhook-id": str(new_job_id())})


async def test_id_and_body_are_the_same_in_every_attempt(receiver: Receiver, wake: Wake) -> None:
    receiver.answers = [answer(500), answer(500), answer(200)]
    id, sent = new_job_id(), payload(receiver)
    for attempt in (1, 2):
        with pytest.raises(DeliveryFailed):
            await wake(make_job(attempt, id), sent)
    await wake(make_job(3, id), sent)
    assert {got.headers["webhook-id"] for got in receiver.received} == {str(id)}
    assert len({got.body for got in receiver.received}) == 1
    assert [got.headers["chronos-attempt"] for got in receiver.received] == ["1", "2", "3"]
    for got in receiver.received:
        Webhook(NEW).verify(got.body, got.headers)


async def test_without_a_secret_nothing_is_signed(receiver: Receiver, wake: Wake) -> None:
    await wake(make_job(), payload(receiver, None))
    assert "webhook-signature" not in receiver.received[0].headers
    assert "webhook-id" in receiver.received[0].headers


async def test_a_secret_nobody_configured_is_a_failed_attempt_and_nothing_is_sent(
    receiver: Receiver, wake: Wake
) -> None:
    with pytest.raises(DeliveryFailed, match=r"unsigned: .*wake\.secrets has no 'nosuch'"):
        await wake(make_job(), payload(receiver, "nosuch"))
    assert receiver.connections == 0


def test_a_secret_is_read_from_a_file_too(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(f"{NEW}\n", encoding="ascii")
    signed = [
        load_signers({"one": [reference]}, ENVIRON)["one"].sign("id", 1, b"{}")
        for reference in (f"file:{file}", "env:NEW")
    ]
    assert signed[0] == signed[1]


@pytest.mark.parametrize(
    "secret",
    [
        "",
        " ",
        "canary",
        "whsec_",
        "whsec_canary!",
        new_secret(23),
        new_secret(65),
        new_secret()[6:],
        NEW.replace("whsec_", "whsec-"),
        f"{NEW}\u00fc",
        NEW[:-3] + "*==",
    ],
    ids=range(11),
)
def test_what_is_no_secret_is_refused_at_the_start_and_not_repeated(
    secret: str, tmp_path: Path
) -> None:
    file = tmp_path / "secret"
    file.write_text(secret, encoding="utf-8")
    for reference in ("env:SECRET", f"file:{file}"):
        with pytest.raises(ConfigError, match=r"^wake\.secrets: 'billing'") as caught:
            load_signers({"billing": ["env:NEW", reference]}, ENVIRON | {"SECRET": secret})
        text = str(caught.value).replace(str(file), "")
        assert len(secret) < 7 or secret.strip() not in text


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigError, match="cannot read file:/nowhere/secret: No such file"):
        load_signers({"billing": "file:/nowhere/secret"}, {})
