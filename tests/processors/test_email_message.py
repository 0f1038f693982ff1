"""What is no mail is refused at enqueue, and what is one cannot say more than it says."""

from email import message_from_bytes
from email.message import EmailMessage as MimeMessage
from email.policy import default
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronos_runtime.errors import InputError
from chronos_runtime.logs import CONTROLS
from chronos_runtime.processors.email_message import (
    ATTACHMENTS_MAX,
    RECIPIENTS_MAX,
    Attachment,
    EmailMessage,
)
from chronos_runtime.processors.headers import HEADERS_MAX
from chronos_runtime.processors.mailbox import Mailbox
from chronos_runtime.processors.mime import build_envelope

ID = UUID("018bcfe5-6800-7000-8000-000000000001")
SENDER = Mailbox("", "shop@example.org")
FINE: dict[str, Any] = {"to": "ada@example.org", "subject": "Hello", "text": "Hello"}
EXPECTED = {"From", "To", "Subject", "Date", "Message-ID", "MIME-Version", "Content-Type"}
EXPECTED |= {"Content-Transfer-Encoding"}

LINE_BREAKS = ["\r\n", "\n", "\r", "\x0b", "\x0c", "\x1c", "\x1e", "\x85", "\u2028", "\u2029"]
INJECTIONS = [f"Hello{end}Bcc: eve@example.org" for end in LINE_BREAKS] + [
    "Hello\r\n\r\n<html>another body",
    "Hello\r\n.\r\nMAIL FROM:<eve@example.org>",
    "Hello\x00",
    "Hello\x1b[2J",
    "\u202emoc.live",
    "Hello\r\n Bcc: eve@example.org",
    "\nHello",
    "Hello\n",
]
ENCODED_WORDS = [
    "=?utf-8?q?Hello=0D=0ABcc:_eve@example.org?=",
    "=?utf-8?b?SGVsbG8NCkJjYzogZXZlQGV4YW1wbGUub3Jn?=",
    "=?us-ascii?Q?=0ABcc=3A_eve=40example=2Eorg?=",
    "a " * 60 + "=?utf-8?q?=0D=0ABcc:_eve@example.org?= =?utf-8?b?DQpCY2M6IGU=?=",
    "x=?utf-8?q?=0D?==?utf-8?q?=0A?=y",
    "=?utf-7?q?+AA0ACg-Bcc?=",
    "=?utf-8?q?=0D=0ABcc:?= grüße",
]
ADDRESSES = [
    "",
    " ",
    "ada",
    "@example.org",
    "ada@",
    "ada@@example.org",
    "ada@example.org, eve@example.org",
    "ada@example.org eve@example.org",
    "ada@example.org;eve@example.org",
    "ada@example.org\r\nRCPT TO:<eve@example.org>",
    "ada@example.org\n",
    "\nada@example.org",
    "ada@example.org> SIZE=1",
    "<ada@example.org",
    "ada@example.org>",
    "<<ada@example.org>>",
    "Ada <ada@example.org> <eve@example.org>",
    "Ada <ada@example.org>\r\nBcc: eve@example.org",
    "Ada\r\nBcc: eve@example.org <ada@example.org>",
    "Ada\u2028 <ada@example.org>",
    '"ada eve"@example.org',
    '"ada@evil"@example.org',
    "ada(comment)@example.org",
    "@relay.example:ada@example.org",
    "ada%evil@[127.0.0.1]",
    "ada@[IPv6:::1]",
    "ada@[::1]",
    ".ada@example.org",
    "ada.@example.org",
    "a..da@example.org",
    "ada@-example.org",
    "ada@example..org",
    "ada@example.org.",
    "ada@exa mple.org",
    "ada@0x7f.1",
    "аda@example.org",
    "ada@еxample.org",
    "ada@example.org\x00",
    "ada@example.org\x1b",
    f"{'a' * 65}@example.org",
    f"ada@{'a' * 64}.org",
    f"ada@{'a.' * 130}org",
    f"{'A' * 201} <ada@example.org>",
    "=?utf-8?q?ada?=@example.org@x",
]


def built(**fields: Any) -> MimeMessage:
    """The mail as a receiver reads it, made of fields as they come from JSON."""
    message = msgspec.convert(FINE | fields, EmailMessage)
    data = build_envelope(ID, message, sender=SENDER, domain="example.org").data
    assert data.isascii()
    assert b"\n" not in data.replace(b"\r\n", b"")
    assert b"\r" not in data.replace(b"\r\n", b"")
    made = message_from_bytes(data, policy=default)
    assert isinstance(made, MimeMessage)
    return made


def refused(**fields: Any) -> str:
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert(FINE | fields, EmailMessage)
    return str(caught.value)


@pytest.mark.parametrize("text", INJECTIONS, ids=ascii)
def test_a_line_break_in_what_is_one_line_is_refused(text: str) -> None:
    assert refused(subject=text).startswith("subject: ")
    assert refused(to=f"{text} <ada@example.org>").startswith("to: ")
    assert refused(sender=f"{text} <ada@example.org>").startswith("sender: ")
    assert refused(headers={"X-Note": text}).startswith("headers: ")
    assert refused(headers={text: "x"}).startswith("headers: ")
    assert refused(attachments=[{"file": "a.pdf", "name": text}]).startswith("attachments: ")
    assert refused(attachments=[{"file": "a.pdf", "content_type": text}]).startswith("attachm")


@pytest.mark.parametrize("text", ENCODED_WORDS, ids=ascii)
def test_an_encoded_word_is_text_and_never_decoded_on_its_way_out(text: str) -> None:
    got = built(subject=text)
    assert got["Subject"] == text
    assert set(got.keys()) == EXPECTED
    got = built(to=f"{text[:200]} <ada@example.org>", headers={"X-Note": "=?utf-8?q?=0D=0AB:?="})
    assert set(got.keys()) == EXPECTED | {"X-Note"}
    assert [one.addr_spec for one in got["To"].addresses] == ["ada@example.org"]
    assert refused(attachments=[{"file": "a.pdf", "name": text}]).startswith("attachments: ")


@pytest.mark.parametrize("address", ADDRESSES, ids=ascii)
@pytest.mark.parametrize("field", ["to", "cc", "bcc", "reply_to", "sender"])
def test_what_is_no_address_is_refused_and_not_repeated(field: str, address: str) -> None:
    text = refused(**{field: address})
    assert text.startswith((f"{field}: ", "to: give 1"))
    assert len(address.strip()) < 5 or address not in text.replace("user@example.org", "")
    if field != "sender":
        assert refused(**{field: ["bob@example.org", address]}).startswith(f"{field}: ")


@pytest.mark.parametrize(
    ("text", "name", "address"),
    [
        ("ada@example.org", "", "ada@example.org"),
        ("ada+tag@Example.ORG", "", "ada+tag@example.org"),
        ("o'hara@example.org", "", "o'hara@example.org"),
        ("root@localhost", "", "root@localhost"),
        ("ada@xn--bcher-kva.example", "", "ada@xn--bcher-kva.example"),
        ("Ada<ada@example.org>", "Ada", "ada@example.org"),
        ('"Lovelace, Ada" <ada@example.org>', "Lovelace, Ada", "ada@example.org"),
        (r'"Ada \"Countess\" L." <ada@example.org>', 'Ada "Countess" L.', "ada@example.org"),
        ("Jürgen Groß <j@example.org>", "Jürgen Groß", "j@example.org"),
        ("eve@evil.example <ada@example.org>", "eve@evil.example", "ada@example.org"),
    ],
)
def test_a_mailbox_is_read_as_people_write_it(text: str, name: str, address: str) -> None:
    assert Mailbox.of(text, "to") == Mailbox(name, address)
    (got,) = built(to=text)["To"].addresses
    assert (got.display_name, got.addr_spec) == (name, address)


@given(st.text(max_size=300), st.text(min_size=1, max_size=100))
def test_any_text_either_arrives_as_it_was_or_is_refused(subject: str, name: str) -> None:
    try:
        got = built(subject=subject, to=f"{name} <ada@example.org>")
    except msgspec.ValidationError:
        return
    assert set(got.keys()) == EXPECTED
    assert got["Subject"].strip() == subject.strip()
    assert [one.addr_spec for one in got["To"].addresses] == ["ada@example.org"]
    assert not CONTROLS.search(str(got["To"]))


@given(st.text(max_size=500), st.text(max_size=500))
def test_any_text_of_a_body_stays_in_it(text: str, html: str) -> None:
    got = built(text=text, html=html)
    assert set(got.keys()) == EXPECTED - {"Content-Transfer-Encoding"}
    assert [part.get_content_type() for part in got.walk()] == [
        "multipart/alternative",
        "text/plain",
        "text/html",
    ]


@pytest.mark.parametrize(
    "headers",
    [
        {"Bcc": "eve@example.org"},
        {"to": "eve@example.org"},
        {"FROM": "eve@example.org"},
        {"Sender": "eve@example.org"},
        {"Return-Path": "<eve@example.org>"},
        {"Resent-To": "eve@example.org"},
        {"Message-Id": "<1@example.org>"},
        {"MIME-Version": "1.0"},
        {"Content-Type": "text/html"},
        {"content-transfer-encoding": "8bit"},
        {"DKIM-Signature": "v=1"},
        {"ARC-Seal": "i=1"},
        {"Received": "from nowhere"},
        {"Received-SPF": "pass"},
        {"Authentication-Results": "pass"},
        {"X Y": "x"},
        {"X:": "x"},
        {"": "x"},
        {"-": "x"},
        {"Ä": "x"},
        {"X": ""},
        {"X": " a"},
        {"X": "ä"},
        {"X": "a" * 901},
        {"X-Twice": "a", "x-twice": "b"},
        {f"X-{number}": "a" for number in range(HEADERS_MAX + 1)},
    ],
    ids=lambda headers: str(headers)[:40],
)
def test_headers_that_are_fields_or_none_are_refused(headers: dict[str, str]) -> None:
    assert refused(headers=headers).startswith("headers: ")


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"to": []}, "to: "),
        ({"to": [f"u{number}@example.org" for number in range(RECIPIENTS_MAX + 1)]}, "to: "),
        ({"to": None}, "Expected"),
        ({"text": None}, "text: "),
        ({"subject": "x" * 501}, "subject: "),
        ({"subject": None}, "Expected"),
        ({"wat": 1}, "Object contains unknown field `wat`"),
        ({"attachments": [{"file": "a"}] * (ATTACHMENTS_MAX + 1)}, "Expected `array`"),
        ({"attachments": [{}]}, "attachments: each has either"),
        ({"attachments": [{"file": "a", "url": "https://example.org/a"}]}, "attachments: each"),
        ({"attachments": [{"url": "http://user@example.org/"}]}, "attachments: "),
        ({"attachments": [{"url": "file:///etc/passwd"}]}, "attachments: "),
        ({"attachments": [{"file": "a", "content_type": "multipart/mixed"}]}, "attachments: "),
        ({"attachments": [{"file": "a", "content_type": "message/rfc822"}]}, "attachments: "),
        ({"attachments": [{"file": "a", "content_type": "text/plain; charset=x"}]}, "attachments"),
    ],
    ids=lambda value: str(value)[:50],
)
def test_what_is_no_mail_is_refused_by_its_field(wrong: dict[str, Any], field: str) -> None:
    assert refused(**wrong).startswith(field)


def test_html_alone_is_a_mail() -> None:
    got = built(text=None, html="<p>Grüße</p>")
    assert got.get_content_type() == "text/html"
    assert got.get_content().strip() == "<p>Grüße</p>"


def test_a_mail_without_a_recipient_in_sight_is_one() -> None:
    got = built(to=[], bcc="ada@example.org")
    assert "To" not in got
    assert "Bcc" not in got


@pytest.mark.parametrize(
    ("attachment", "name", "content_type"),
    [
        ({"file": "invoices/7.pdf"}, "7.pdf", "application/pdf"),
        ({"file": "a", "name": "Rechnung Mai.pdf"}, "Rechnung Mai.pdf", "application/pdf"),
        ({"file": "grüße.txt"}, "grüße.txt", "text/plain"),
        ({"file": "a.tar.gz"}, "a.tar.gz", "application/octet-stream"),
        ({"file": "a.eml"}, "a.eml", "application/octet-stream"),
        ({"file": "a", "content_type": "image/png"}, "a", "image/png"),
        ({"url": "https://example.org/f/a.png?key=1"}, "a.png", "image/png"),
        ({"url": "https://example.org/"}, "attachment", "application/octet-stream"),
        ({"file": 'a"; filename="b.exe'}, 'a"; filename="b.exe', None),
    ],
    ids=str,
)
def test_an_attachment_has_a_name_and_a_type(
    attachment: dict[str, str], name: str, content_type: str | None
) -> None:
    one = msgspec.convert(attachment, Attachment)
    message = msgspec.convert(FINE, EmailMessage)
    data = build_envelope(
        ID, message, sender=SENDER, domain="example.org", files=[(one, b"\x00\xff")]
    ).data
    made = message_from_bytes(data, policy=default)
    assert isinstance(made, MimeMessage)
    (got,) = made.iter_attachments()
    assert got.get_filename() == name
    assert got.get_payload(decode=True) == b"\x00\xff"
    if content_type is not None:
        assert got.get_content_type() == content_type


def test_a_mailbox_cannot_be_mistaken_for_two() -> None:
    with pytest.raises(InputError):
        Mailbox.of("a@example.org,b@example.org", "to")
