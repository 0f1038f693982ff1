"""From a message to the bytes that a relay is handed.

Its Message-ID is made of the job's id, so it is the same in every attempt: whoever gets a mail
twice, because a worker died between the relay's answer and its own commit, can tell. Everything
is written in seven bits: no relay can have trouble with it.

The headers are written here and not by the library. Its policy reads a value again before it
writes it: an encoded word (`=?utf-8?q?=0D=0ABcc:…?=`) is decoded and its line break becomes one,
and a long List-Unsubscribe is encoded, which nobody undoes.
"""

import mimetypes
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from email.header import Header
from email.message import EmailMessage as MimeMessage
from email.policy import SMTP
from email.utils import format_datetime
from uuid import UUID

import msgspec

from chronos_runtime.processors.email_message import Attachment, EmailMessage
from chronos_runtime.processors.mailbox import Mailbox

_POLICY = SMTP.clone(cte_type="7bit")
_LINE_MAX_CHARS = 998
_LINE_GOOD_CHARS = 76
_PLAIN = re.compile(r"[\x20-\x7e]*")
_TYPE_DEFAULT = "application/octet-stream"


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """What a relay is told, and what it is handed."""

    sender: str
    recipients: list[str]
    message_id: str
    data: bytes


def message_id(id: UUID, domain: str) -> str:
    """The Message-ID of a job's mail.

    >>> message_id(UUID("018bcfe5-6800-7000-8000-000000000001"), "example.org")
    '<018bcfe5-6800-7000-8000-000000000001@example.org>'
    """
    return f"<{id}@{domain}>"


def build_envelope(
    id: UUID,
    message: EmailMessage,
    *,
    sender: Mailbox,
    domain: str,
    files: Sequence[tuple[Attachment, bytes]] = (),
) -> Envelope:
    """The mail of a job, ready to be handed over.

    >>> hello = EmailMessage(to="Ada <ada@example.org>", subject="Grüße", text="Hallo")
    >>> me = Mailbox("Shop", "shop@example.org")
    >>> envelope = build_envelope(UUID(int=7), hello, sender=me, domain="example.org")
    >>> print(*envelope.data.decode().splitlines()[:3], sep="\\n")
    From: "Shop" <shop@example.org>
    To: "Ada" <ada@example.org>
    Subject: =?utf-8?b?R3LDvMOfZQ==?=
    """
    made = MimeMessage(policy=_POLICY)
    if message.text is not None:
        made.set_content(message.text)
        if message.html is not None:
            made.add_alternative(message.html, subtype="html")
    else:
        assert message.html is not None
        made.set_content(message.html, subtype="html")
    for attachment, content in files:
        maintype, subtype = _type_of(attachment).split("/")
        made.add_attachment(
            content, maintype=maintype, subtype=subtype, filename=attachment.file_name
        )
    id_written = message_id(id, domain)
    head = "\r\n".join([*_head(message, sender, id_written), ""])
    return Envelope(
        sender=sender.address,
        recipients=message.recipients,
        message_id=id_written,
        data=head.encode("ascii") + made.as_bytes(),
    )


def _head(message: EmailMessage, sender: Mailbox, id: str) -> Iterator[str]:
    yield f"From: {_written(sender)}"
    for name, field in (("To", "to"), ("Cc", "cc"), ("Reply-To", "reply_to")):
        if boxes := message.mailboxes(field):
            yield f"{name}: " + ",\r\n ".join(_written(box) for box in boxes)
    yield f"Subject: {_encoded(message.subject, len('Subject: '))}"
    yield f"Date: {format_datetime(datetime.now(UTC))}"
    yield f"Message-ID: {id}"
    for name, value in message.headers.items():
        yield f"{name}: {value}"


def _written(box: Mailbox) -> str:
    if not box.name:
        return box.address
    if _PLAIN.fullmatch(box.name) and "=?" not in box.name:
        name = re.sub(r'(["\\])', r"\\\1", box.name)
        return f'"{name}" <{box.address}>'
    return f"{_encoded(box.name, len('Reply-To: '))}\r\n <{box.address}>"


def _encoded(text: str, taken: int) -> str:
    """`text` as it stands in a header, after `taken` characters of its first line."""
    if _PLAIN.fullmatch(text) and "=?" not in text and taken + len(text) <= _LINE_MAX_CHARS:
        return text
    header = Header(text, "utf-8", maxlinelen=_LINE_GOOD_CHARS, header_name="x" * (taken - 2))
    return header.encode(linesep="\r\n")


def _type_of(attachment: Attachment) -> str:
    guessed, encoding = mimetypes.guess_type(attachment.file_name, strict=True)
    if attachment.content_type is not None:
        return attachment.content_type
    # What is compressed is not of the type inside; and no part may look like a mail of its own.
    if guessed is None or encoding or guessed.startswith(("message/", "multipart/")):
        return _TYPE_DEFAULT
    return guessed
