"""What a relay replies decides what becomes of a mail, and nothing is lost between the two."""

import logging
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from email import message_from_bytes
from email.message import EmailMessage as MimeMessage
from email.policy import default
from pathlib import Path
from typing import Any

import anyio
import pytest
import trustme

from chronos_runtime.config import Config
from chronos_runtime.errors import (
    ConfigError,
    PermanentFailure,
    ProcessorFailure,
    TemporaryFailure,
)
from chronos_runtime.failure import failure_record
from chronos_runtime.ids import new_job_id
from chronos_runtime.job import Snooze
from chronos_runtime.processors.email import Email
from chronos_runtime.processors.email_message import EmailMessage
from tests.eventually import eventually
from tests.processors.conftest import make_task
from tests.processors.mail_server import (
    DROP,
    HANG,
    KEEP_AND_DROP,
    KEEP_AND_HANG,
    PASSWORD,
    USER,
    MailServer,
)

SOON_S = 5.0
CANARY = "canary-of-the-body"
HELLO = EmailMessage(
    to="Ada <ada@example.org>", subject=f"Hello {CANARY}", text=f"Hello, Ada. {CANARY}"
)

MakeEmail = Callable[..., Email]


@pytest.fixture
def server() -> Iterator[MailServer]:
    with MailServer().serve() as server:
        yield server


@pytest.fixture
async def make_email() -> AsyncIterator[MakeEmail]:
    """Makes processors of `[email]` settings for a server, closed afterwards."""
    made: list[Email] = []

    def make(server: MailServer | int, ssl_context: Any = None, **settings: Any) -> Email:
        port = server if isinstance(server, int) else server.port
        given = {"host": "localhost", "port": port, "tls": "none", "sender": "shop@example.org"}
        config = Config.of({"email": given | settings}).email
        made.append(Email(config, ssl_context=ssl_context, environ={"SMTP_PASSWORD": PASSWORD}))
        return made[-1]

    yield make
    for email in made:
        await email.aclose()


@pytest.fixture
def email(server: MailServer, make_email: MakeEmail) -> Email:
    return make_email(server)


def parsed(content: bytes) -> MimeMessage:
    message = message_from_bytes(content, policy=default)
    assert isinstance(message, MimeMessage)
    return message


async def outcome_of(email: Email, message: EmailMessage = HELLO) -> tuple[str, bool, str]:
    """The outcome, whether it is for good, and the reason."""
    with anyio.fail_after(SOON_S), pytest.raises(ProcessorFailure) as caught:
        await email(make_task(), message)
    failure = caught.value
    return failure.outcome, isinstance(failure, PermanentFailure), str(failure)


async def test_a_mail_arrives_with_everything_it_was_given(
    server: MailServer, email: Email
) -> None:
    task = make_task()
    message = EmailMessage(
        to=["Ada Lovelace <ada@example.org>", "bob@example.org"],
        cc="Jürgen <j@example.org>",
        bcc=["eve@example.org", "ada@example.org"],
        sender="Der Shop <noreply@shop.example>",
        reply_to="help@shop.example",
        subject="Grüße aus dem Shop",
        text="Hallo\n.\nund .. Punkte\n",
        html="<p>Hallo</p>",
        headers={"List-Unsubscribe": f"<https://shop.example/{'u' * 300}>"},
    )
    answer = await email(task, message)
    assert answer == {
        "message_id": f"<{task.id}@shop.example>",
        "reply": "250 2.0.0 fine",
        "refused": [],
    }
    (mail,) = server.mails
    assert mail.sender == "noreply@shop.example"
    everybody = ["ada@example.org", "bob@example.org", "j@example.org", "eve@example.org"]
    assert mail.recipients == everybody
    got = parsed(mail.content)
    assert got["Subject"] == "Grüße aus dem Shop"
    assert got["From"] == "Der Shop <noreply@shop.example>"
    assert got["To"] == "Ada Lovelace <ada@example.org>, bob@example.org"
    assert got["Cc"] == "Jürgen <j@example.org>"
    assert got["Reply-To"] == "help@shop.example"
    assert got["Message-ID"] == f"<{task.id}@shop.example>"
    assert got["List-Unsubscribe"] == message.headers["List-Unsubscribe"]
    assert got["Date"].datetime.utcoffset() is not None
    assert "Bcc" not in got
    assert b"eve@" not in mail.content
    text, html = got.get_body(("plain",)), got.get_body(("html",))
    assert text is not None
    assert html is not None
    assert text.get_content().splitlines() == ["Hallo", ".", "und .. Punkte"]
    assert html.get_content().strip() == "<p>Hallo</p>"
    assert mail.content.isascii()
    assert max(map(len, mail.content.split(b"\r\n"))) <= 998


async def test_every_attempt_has_the_same_message_id(server: MailServer, email: Email) -> None:
    id = new_job_id()
    server.replies["DATA"] = [KEEP_AND_DROP, "451 later", "250 fine"]
    for attempt in (1, 2):
        with pytest.raises(TemporaryFailure):
            await email(make_task(attempt, id), HELLO)
    await email(make_task(3, id), HELLO)
    assert [parsed(mail.content)["Message-ID"] for mail in server.mails] == [
        f"<{id}@example.org>"
    ] * 2


async def test_a_message_id_ends_with_the_domain_of_the_settings(
    server: MailServer, make_email: MakeEmail
) -> None:
    task = make_task()
    answer = await make_email(server, domain="mail.shop.example")(task, HELLO)
    assert isinstance(answer, dict)
    assert answer["message_id"] == f"<{task.id}@mail.shop.example>"


@pytest.mark.parametrize("command", ["MAIL", "RCPT", "DATA"])
@pytest.mark.parametrize(
    ("reply", "verdict"),
    [
        ("421 4.3.2 closing", ("deferred", False)),
        ("450 4.2.0 greylisted", ("deferred", False)),
        ("451 4.3.0 try later", ("deferred", False)),
        ("452 4.2.2 full", ("deferred", False)),
        ("550 5.1.1 no such user", ("rejected", True)),
        ("552 5.3.4 too large", ("rejected", True)),
        ("554 5.7.1 spam", ("rejected", True)),
        ("530 5.7.0 log in first", ("auth_failed", False)),
    ],
)
async def test_4xx_is_tried_again_and_5xx_is_not(
    command: str, reply: str, verdict: tuple[str, bool], server: MailServer, email: Email
) -> None:
    if (command, reply[:3]) == ("RCPT", "530"):
        verdict = ("deferred", False)  # It may be said of one recipient, and blames no password.
    server.replies[command] = [reply, "250 fine"]
    assert (await outcome_of(email))[:2] == verdict
    assert server.mails == []
    await email(make_task(), HELLO)  # And the next goes its way, whatever the last one met.
    assert len(server.mails) == 1


async def test_a_reason_names_the_relay_and_what_it_said(server: MailServer, email: Email) -> None:
    server.replies["DATA"] = ["554 5.7.1 \x1b[31mlooks like\tspam" + "!" * 400]
    _, _, reason = await outcome_of(email)
    assert reason.startswith("localhost: 554 while handing over: 5.7.1 [31mlooks like spam!!!")
    assert len(reason) < 300


async def test_whoever_is_not_refused_gets_the_mail_and_the_refused_are_named(
    server: MailServer, email: Email
) -> None:
    server.refused = {"bob@example.org": "550 5.1.1 who?", "eve@example.org": "450 4.2.1 later"}
    names = ["ada@example.org", "bob@example.org", "eve@example.org"]
    answer = await email(make_task(), EmailMessage(to=names, subject="Hello", text="Hello"))
    assert isinstance(answer, dict)
    assert answer["refused"] == [
        {"address": "bob@example.org", "code": 550, "said": "5.1.1 who?"},
        {"address": "eve@example.org", "code": 450, "said": "4.2.1 later"},
    ]
    assert [mail.recipients for mail in server.mails] == [["ada@example.org"]]


@pytest.mark.parametrize(
    ("replies", "outcome"),
    [(("550 no", "551 no"), "rejected"), (("550 no", "450 later"), "deferred")],
)
async def test_when_all_are_refused_one_who_may_be_reached_later_is_worth_another_attempt(
    replies: tuple[str, str], outcome: str, server: MailServer, email: Email
) -> None:
    names = ["ada@example.org", "bob@example.org"]
    server.refused = dict(zip(names, replies, strict=True))
    message = EmailMessage(to=names, subject="Hello", text="Hello")
    assert (await outcome_of(email, message))[0] == outcome
    assert server.mails == []


@pytest.mark.parametrize("command", ["MAIL", "RCPT"])
async def test_a_relay_that_does_not_reply_is_left(
    command: str, server: MailServer, make_email: MakeEmail
) -> None:
    server.replies[command] = [HANG]
    outcome, is_permanent, reason = await outcome_of(make_email(server, timeout_s=1.0))
    assert (outcome, is_permanent) == ("timeout", False)
    assert reason == "localhost: no reply within 1 s while addressing"


@pytest.mark.parametrize("command", ["MAIL", "RCPT"])
async def test_a_relay_that_hangs_up_is_unreachable(
    command: str, server: MailServer, email: Email
) -> None:
    server.replies[command] = [DROP, "250 fine"]
    assert (await outcome_of(email))[:2] == ("unreachable", False)
    await email(make_task(), HELLO)
    assert len(server.mails) == 1


@pytest.mark.parametrize("trouble", [HANG, DROP, KEEP_AND_HANG, KEEP_AND_DROP])
async def test_a_mail_whose_content_got_no_reply_may_have_been_sent_and_says_so(
    trouble: str, server: MailServer, make_email: MakeEmail
) -> None:
    server.replies["DATA"] = [trouble]
    outcome, is_permanent, reason = await outcome_of(make_email(server, timeout_s=1.0))
    assert (outcome, is_permanent) == ("unconfirmed", False)
    assert "it may have been sent" in reason
    assert len(server.mails) == ("keep" in trouble)


async def test_a_relay_that_is_down_is_unreachable_until_it_is_up_again(
    make_email: MakeEmail,
) -> None:
    server = MailServer()
    with server.serve():
        email = make_email(server)
        await email(make_task(), HELLO)
    for _ in range(3):  # The connection that was kept is dead, and no other can be had.
        outcome, is_permanent, reason = await outcome_of(email)
        assert (outcome, is_permanent) == ("unreachable", False)
        assert reason.startswith("localhost: ")
    with server.serve():
        await email(make_task(), HELLO)
    assert len(server.mails) == 2


async def test_a_port_where_nobody_speaks_smtp_costs_a_bounded_time(make_email: MakeEmail) -> None:
    with closing(socket.socket()) as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        email = make_email(mute.getsockname()[1], connect_s=0.2)
        outcome, is_permanent, reason = await outcome_of(email)
    assert (outcome, is_permanent) == ("timeout", False)
    assert reason == "localhost: no reply within 0.2 s while connecting"


@pytest.mark.parametrize(
    ("greeting", "outcome"),
    [
        (b"421 4.3.2 too many of you\r\n", "deferred"),
        (b"554 5.7.1 you are on a list\r\n", "deferred"),
        (b"SSH-2.0-OpenSSH\r\n", "invalid_answer"),
        (b"220 " + b"x" * 100_000, "invalid_answer"),
        (b"", "unreachable"),
    ],
    ids=lambda value: str(value)[:20],
)
async def test_a_greeting_that_is_none_blames_no_mail(
    greeting: bytes, outcome: str, make_email: MakeEmail
) -> None:
    async def greet(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            await stream.send(greeting)

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, greet)
        email = make_email(listener.extra(anyio.abc.SocketAttribute.local_port))
        assert (await outcome_of(email))[:2] == (outcome, False)
        tasks.cancel_scope.cancel()


async def test_connections_are_kept_for_the_next_mail_and_asked_whether_they_live(
    server: MailServer, email: Email
) -> None:
    for _ in range(3):
        await email(make_task(), HELLO)
    assert (server.connections, len(server.mails)) == (1, 3)
    await email.aclose()
    await email(make_task(), HELLO)
    assert server.connections == 2


async def test_a_connection_that_was_kept_too_long_is_not_used_again(
    server: MailServer, email: Email
) -> None:
    await email(make_task(), HELLO)
    [(kept, until)] = email._relay._idle
    assert 0 < until - anyio.current_time() <= 20
    email._relay._idle = [(kept, anyio.current_time())]
    await email(make_task(), HELLO)
    assert server.connections == 2


async def test_no_more_connections_are_open_than_allowed_and_the_rest_is_snoozed(
    server: MailServer, make_email: MakeEmail
) -> None:
    server.replies["DATA"] = [HANG]
    email = make_email(server, connections_max=2, busy_wait_s=0.1)
    decisions: list[object] = []

    async def send() -> None:
        decisions.append(await email(make_task(), HELLO))

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(send)
        await eventually(lambda: len(decisions) == 3)
        assert all(isinstance(one, Snooze) and 5 <= one.for_s <= 10 for one in decisions)
        assert server.connections <= 2
        tasks.cancel_scope.cancel()


async def test_a_mail_that_is_stopped_gives_its_turn_back(
    server: MailServer, make_email: MakeEmail
) -> None:
    server.replies["MAIL"] = [HANG, "250 fine"]
    email = make_email(server, connections_max=1)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(email, make_task(), HELLO)
        await eventually(lambda: len(server.replies["MAIL"]) == 1)
        tasks.cancel_scope.cancel()
    with anyio.fail_after(SOON_S):
        await email(make_task(), HELLO)
    assert len(server.mails) == 1


class Secure:
    """A certificate for some names, and what a client needs to trust it."""

    def __init__(self, *names: str) -> None:
        self.authority = trustme.CA()
        self.server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.authority.issue_cert(*names).configure_cert(self.server)

    @property
    def client(self) -> ssl.SSLContext:
        context = ssl.create_default_context()
        self.authority.configure_trust(context)
        return context


LOGIN = {"username": USER, "password": "env:SMTP_PASSWORD"}


def secured(mode: str, secure: Secure) -> MailServer:
    if mode == "tls":
        return MailServer(tls=secure.server, auth_required=True, auth_require_tls=False)
    return MailServer(
        tls_context=secure.server, require_starttls=True, auth_required=True, auth_require_tls=True
    )


@pytest.mark.parametrize("mode", ["tls", "starttls"])
@pytest.mark.filterwarnings("ignore:Requiring AUTH while not requiring TLS")
async def test_a_mail_goes_over_tls_with_a_password(mode: str, make_email: MakeEmail) -> None:
    secure = Secure("localhost")
    with secured(mode, secure).serve() as server:
        email = make_email(server, secure.client, tls=mode, **LOGIN)
        for _ in range(2):
            await email(make_task(), HELLO)
        await email.aclose()
    assert (len(server.mails), server.logins, server.connections) == (2, 1, 1)


@pytest.mark.parametrize("mode", ["tls", "starttls"])
@pytest.mark.parametrize("trouble", ["unknown authority", "other name"])
@pytest.mark.filterwarnings("ignore:Requiring AUTH while not requiring TLS")
async def test_a_certificate_that_is_not_good_is_refused_and_no_password_is_told(
    mode: str, trouble: str, make_email: MakeEmail
) -> None:
    secure = Secure("localhost" if trouble == "unknown authority" else "other.example")
    trusted = Secure("localhost") if trouble == "unknown authority" else secure
    with secured(mode, secure).serve() as server:
        email = make_email(server, trusted.client, tls=mode, **LOGIN)
        outcome, is_permanent, reason = await outcome_of(email)
    assert (outcome, is_permanent) == ("tls_failed", False)
    assert reason.startswith("localhost: its certificate is not good: ")
    assert (server.logins, server.mails) == (0, [])


async def test_an_authority_may_be_given_as_a_file(make_email: MakeEmail, tmp_path: Path) -> None:
    secure = Secure("localhost")
    secure.authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    with MailServer(tls=secure.server).serve() as server:
        email = make_email(server, tls="tls", ca_file=str(tmp_path / "ca.pem"))
        await email(make_task(), HELLO)
        await email.aclose()
    assert len(server.mails) == 1
    with pytest.raises(ConfigError, match=r"^email\.ca_file: cannot be read: No such file"):
        make_email(server, ca_file="/nowhere/ca.pem")


async def test_starttls_that_is_not_offered_is_demanded_all_the_same(
    server: MailServer, make_email: MakeEmail
) -> None:
    outcome, is_permanent, reason = await outcome_of(make_email(server, tls="starttls", **LOGIN))
    assert (outcome, is_permanent) == ("tls_failed", False)
    assert reason == "localhost: it offers no STARTTLS"
    assert (server.logins, server.mails) == (0, [])


async def test_a_password_that_is_wrong_is_tried_again_and_never_repeated(
    server: MailServer, make_email: MakeEmail
) -> None:
    email = make_email(server, username="somebody else", password="env:SMTP_PASSWORD")
    outcome, is_permanent, reason = await outcome_of(email)
    assert (outcome, is_permanent) == ("auth_failed", False)
    assert reason == "localhost: 535 while authenticating"
    assert server.logins > 0


async def test_a_password_that_is_not_there_is_said_at_the_start(make_email: MakeEmail) -> None:
    with pytest.raises(ConfigError, match=r"^email\.password is to be read from env:NOWHERE"):
        make_email(25, username="shop", password="env:NOWHERE")


@pytest.mark.parametrize(
    ("settings", "trouble"),
    [
        ({"sender": "shop"}, "email.sender: "),
        ({"host": "relay\r\nQUIT"}, "email.host: "),
        ({"domain": "exa mple"}, "email.domain: "),
        ({"allow": ["10.0.0.1/8"]}, "email.allow: "),
    ],
    ids=str,
)
async def test_settings_that_cannot_work_are_refused_at_the_start(
    settings: Any, trouble: str, make_email: MakeEmail
) -> None:
    with pytest.raises(ConfigError, match=f"^{trouble}"):
        make_email(25, **settings)


async def test_a_message_without_a_sender_needs_one_in_the_settings(
    server: MailServer, make_email: MakeEmail
) -> None:
    outcome, is_permanent, _ = await outcome_of(make_email(server, sender=""))
    assert (outcome, is_permanent, server.connections) == ("invalid", True, 0)


async def test_bounds_of_the_settings_hold_before_anything_is_sent(
    server: MailServer, make_email: MakeEmail
) -> None:
    email = make_email(server, recipients_max=1, message_max_kb=1)
    many = EmailMessage(to=["ada@example.org", "bob@example.org"], subject="", text="")
    assert (await outcome_of(email, many))[:2] == ("invalid", True)
    large = EmailMessage(to="ada@example.org", subject="", text="x" * 2_000)
    assert (await outcome_of(email, large))[:2] == ("too_large", True)
    assert server.connections == 0


async def test_no_password_address_or_word_of_a_mail_is_logged_or_kept_in_an_error(
    server: MailServer, make_email: MakeEmail, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    email = make_email(server, timeout_s=0.3, **LOGIN)
    troubles = [f"554 no: {PASSWORD}", f"451 no: {PASSWORD}", HANG, DROP]
    leaks: list[object] = []
    for trouble in troubles:
        for command in ("MAIL", "RCPT", "DATA"):
            server.replies[command] = [trouble, "250 fine"]
            with pytest.raises(ProcessorFailure) as caught:
                await email(make_task(), HELLO)
            server.replies.pop(command)
            leaks.append(failure_record(caught.value, attempt=1, worker="w"))
    ours = [record for record in caplog.records if record.name.startswith("chronos_runtime")]
    assert len(ours) == len(leaks) == 12
    leaks += [vars(record) for record in ours]
    shown = str(leaks)
    for secret in (PASSWORD, CANARY, "ada@example.org"):
        assert secret not in shown
    assert {vars(record)["host"] for record in ours} == {"localhost"}
