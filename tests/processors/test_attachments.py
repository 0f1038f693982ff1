"""Attachments are found where they may be, and nowhere else."""

import os
from collections.abc import AsyncIterator, Callable
from email import message_from_bytes
from email.message import EmailMessage as MimeMessage
from email.policy import default
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from chronos_runtime.config import Config
from chronos_runtime.errors import PermanentFailure, ProcessorFailure
from chronos_runtime.processors.attachments import Attachments
from chronos_runtime.processors.email import Email
from chronos_runtime.processors.email_message import Attachment, EmailMessage
from tests.processors.conftest import make_task
from tests.processors.mail_server import MailServer
from tests.processors.receiver import Detour, Receiver, answer

SOON_S = 5.0
CANARY = b"canary-of-another-directory"

ESCAPES = [
    "../secret",
    "..",
    ".",
    "",
    "/etc/passwd",
    "//etc/passwd",
    "a/../../secret",
    "a/./b",
    "a//b",
    "a/",
    "./a",
    "a/..",
    "..\\secret",
    "a\\b",
    "C:\\secret",
    "a\x00b",
    "a\nb",
    "~\x1b/secret",
    "x" * 501,
]

MakeAttachments = Callable[..., Attachments]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A directory of attachments, and a secret beside it."""
    (tmp_path / "secret").write_bytes(CANARY)
    folder = tmp_path / "attachments"
    (folder / "invoices").mkdir(parents=True)
    (folder / "invoices" / "7.pdf").write_bytes(b"%PDF")
    return folder


@pytest.fixture
async def make_attachments(folder: Path) -> AsyncIterator[MakeAttachments]:
    made: list[Attachments] = []

    def make(settings: dict[str, Any] | None = None, **options: Any) -> Attachments:
        given = {"attachments_dir": str(folder)} | (settings or {})
        made.append(Attachments(Config.of({"email": given}).email, **options))
        return made[-1]

    yield make
    for attachments in made:
        await attachments.aclose()


async def fetched(attachments: Attachments, **fields: str) -> bytes:
    with anyio.fail_after(SOON_S):
        [(_, content)] = await attachments.fetch([Attachment(**fields)])
    return content


async def outcome_of(attachments: Attachments, **fields: str) -> tuple[str, bool, str]:
    with pytest.raises(ProcessorFailure) as caught:
        await fetched(attachments, **fields)
    failure = caught.value
    return failure.outcome, isinstance(failure, PermanentFailure), str(failure)


async def test_a_file_below_the_directory_is_read(make_attachments: MakeAttachments) -> None:
    assert await fetched(make_attachments(), file="invoices/7.pdf") == b"%PDF"


@pytest.mark.parametrize("path", ESCAPES, ids=lambda path: ascii(path)[:20])
def test_a_path_that_leads_out_is_refused_at_enqueue(path: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=r"^attachments: file must be a path"):
        msgspec.convert({"file": path, "name": "x"}, Attachment)


async def test_no_link_is_followed_wherever_it_leads(
    folder: Path, make_attachments: MakeAttachments
) -> None:
    attachments = make_attachments()
    (folder / "out").symlink_to(folder.parent / "secret")
    (folder / "outside").symlink_to(folder.parent)
    (folder / "inside").symlink_to(folder / "invoices")
    (folder / "loop").symlink_to(folder / "loop")
    (folder / "proc").symlink_to("/proc/self")
    for path in ("out", "outside/secret", "inside/7.pdf", "loop", "proc/environ"):
        outcome, is_permanent, reason = await outcome_of(attachments, file=path)
        assert (outcome, is_permanent) == ("attachment_refused", True), path
        assert "links are not followed" in reason
        assert str(folder) not in reason


async def test_the_directory_itself_may_be_a_link(
    folder: Path, make_attachments: MakeAttachments
) -> None:
    (folder.parent / "link").symlink_to(folder)
    attachments = make_attachments({"attachments_dir": str(folder.parent / "link")})
    assert await fetched(attachments, file="invoices/7.pdf") == b"%PDF"


async def test_what_is_no_file_is_refused_and_waits_for_nobody(
    folder: Path, make_attachments: MakeAttachments
) -> None:
    os.mkfifo(folder / "pipe")
    for path in ("pipe", "invoices", "invoices/7.pdf/x"):
        outcome, is_permanent, _ = await outcome_of(make_attachments(), file=path)
        assert (outcome, is_permanent) == ("attachment_refused", True), path


async def test_a_file_that_is_not_there_may_come(make_attachments: MakeAttachments) -> None:
    outcome, is_permanent, reason = await outcome_of(make_attachments(), file="8.pdf")
    assert (outcome, is_permanent) == ("attachment_failed", False)
    assert reason == "attachment 1: cannot be read: No such file or directory"


async def test_without_a_directory_there_are_no_files(make_attachments: MakeAttachments) -> None:
    attachments = make_attachments({"attachments_dir": ""})
    outcome, is_permanent, reason = await outcome_of(attachments, file="etc/passwd")
    assert (outcome, is_permanent) == ("attachment_failed", False)
    assert "email.attachments_dir is not set" in reason


async def test_together_they_stay_within_the_bound_and_no_more_is_read(
    folder: Path, make_attachments: MakeAttachments
) -> None:
    (folder / "half").write_bytes(b"x" * 512)
    with (folder / "huge").open("wb") as file:
        file.truncate(1 << 40)
    attachments = make_attachments({"message_max_kb": 1})
    half = Attachment(file="half")
    assert len(await attachments.fetch([half, half])) == 2
    for many in ([half, half, half], [Attachment(file="huge")]):
        with pytest.raises(PermanentFailure, match="more than 1 kB") as caught:
            await attachments.fetch(many)
        assert caught.value.outcome == "too_large"


async def test_a_url_is_fetched_from_whom_the_settings_allow(
    receiver: Receiver, make_attachments: MakeAttachments
) -> None:
    receiver.answers = [answer(200, body=b"%PDF")]
    attachments = make_attachments({"allow": [f"127.0.0.1:{receiver.port}"]})
    url = f"http://127.0.0.1:{receiver.port}/7.pdf?key=1"
    assert await fetched(attachments, url=url) == b"%PDF"
    assert receiver.received[0].line == "GET /7.pdf?key=1 HTTP/1.1"


@pytest.mark.parametrize(
    ("url", "addresses"),
    [
        ("https://127.0.0.1/", []),
        ("https://169.254.169.254/latest/meta-data/", []),
        ("http://example.org/", []),
        ("https://localhost/", []),
        ("https://[::1]/", []),
        ("https://example.org:8080/", []),
        ("https://inside.example.org/", ["10.0.0.1"]),
        ("https://both.example.org/", ["93.184.215.14", "127.0.0.1"]),
    ],
)
async def test_a_url_that_leads_inside_is_refused_and_not_dialled(
    url: str, addresses: list[str], make_attachments: MakeAttachments
) -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return addresses

    detour = Detour(None)
    attachments = make_attachments({}, resolve=resolve, network=detour)
    outcome, is_permanent, reason = await outcome_of(attachments, url=url)
    assert (outcome, is_permanent) == ("attachment_refused", True)
    assert "email." in reason
    assert detour.dialled == []


@pytest.mark.parametrize("status", [301, 302, 307, 403, 404, 500])
async def test_an_answer_that_has_no_attachment_is_a_failed_attempt_and_led_nowhere(
    status: int, receiver: Receiver, make_attachments: MakeAttachments
) -> None:
    receiver.answers = [answer(status, "Location: https://169.254.169.254/", body=CANARY)]
    attachments = make_attachments({"allow": [f"127.0.0.1:{receiver.port}"]})
    url = f"http://127.0.0.1:{receiver.port}/?key=canary"
    outcome, is_permanent, reason = await outcome_of(attachments, url=url)
    assert (outcome, is_permanent) == ("attachment_failed", False)
    assert reason.startswith(f"attachment 1: 127.0.0.1: {status} ")
    assert "canary" not in reason
    assert len(receiver.received) == 1


@pytest.mark.parametrize(
    "sent",
    [
        answer(200, body=b"x" * 2_000),
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n%PDF\r\n",
    ],
    ids=["too long", "breaks off", "has no end"],
)
async def test_half_an_attachment_is_none(
    sent: bytes, receiver: Receiver, make_attachments: MakeAttachments
) -> None:
    async def speak(stream: anyio.abc.ByteStream) -> None:
        await stream.send(sent)
        await stream.aclose()

    receiver.answers = [speak]
    settings = {"allow": [f"127.0.0.1:{receiver.port}"], "message_max_kb": 1, "timeout_s": 1.0}
    url = f"http://127.0.0.1:{receiver.port}/"
    outcome, is_permanent, _ = await outcome_of(make_attachments(settings), url=url)
    assert (outcome, is_permanent) == ("attachment_failed", False)


async def test_all_attachments_together_have_a_bounded_time(
    receiver: Receiver, make_attachments: MakeAttachments
) -> None:
    async def drip(stream: anyio.abc.ByteStream) -> None:
        await stream.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        await anyio.sleep_forever()

    receiver.answers = [answer(200, body=b"%PDF"), drip]
    settings = {"allow": [f"127.0.0.1:{receiver.port}"], "timeout_s": 0.3}
    one = Attachment(url=f"http://127.0.0.1:{receiver.port}/")
    with anyio.fail_after(SOON_S), pytest.raises(ProcessorFailure) as caught:
        await make_attachments(settings).fetch([one, one])
    assert str(caught.value).startswith("attachment 2: ")
    assert caught.value.outcome == "attachment_failed"


async def test_an_attachment_arrives_with_its_mail(
    folder: Path, make_attachments: MakeAttachments
) -> None:
    content = bytes(range(256)) * 400
    (folder / "every byte.bin").write_bytes(content)
    with MailServer().serve() as server:
        given = {"host": "localhost", "port": server.port, "tls": "none"}
        config = Config.of({"email": given | {"attachments_dir": str(folder)}}).email
        email = Email(config)
        message = EmailMessage(
            to="ada@example.org",
            sender="shop@example.org",
            subject="Rechnung",
            text="Anbei.",
            attachments=[
                Attachment(file="invoices/7.pdf"),
                Attachment(file="every byte.bin", name="grüße.bin"),
            ],
        )
        await email(make_task(), message)
        await email.aclose()
    [mail] = server.mails
    got = message_from_bytes(mail.content, policy=default)
    assert isinstance(got, MimeMessage)
    parts = [
        (part.get_filename(), part.get_payload(decode=True)) for part in got.iter_attachments()
    ]
    assert parts == [("7.pdf", b"%PDF"), ("grüße.bin", content)]
