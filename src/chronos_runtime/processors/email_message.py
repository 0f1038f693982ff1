"""What an e-mail says, as enqueued or as a `before_handler` made it; checked before it is sent."""

import re
from typing import Annotated

import msgspec

from chronos_runtime.errors import InputError
from chronos_runtime.logs import CONTROLS
from chronos_runtime.processors.headers import HeaderRules
from chronos_runtime.processors.mailbox import Mailbox
from chronos_runtime.processors.targets import Target

EMAIL_KIND = "chronos.email"
SUBJECT_MAX_CHARS = 500
RECIPIENTS_MAX = 1_000
ATTACHMENTS_MAX = 20
FILE_MAX_CHARS = 500

_TYPE = re.compile(r"(?!multipart/|message/)[a-z0-9][a-z0-9.+-]{0,60}/[a-z0-9][a-z0-9.+-]{0,60}")
# Reserved: fields of the message, ours to write, or the business of servers on the way.
_HEADERS = HeaderRules(
    name=re.compile(r"[A-Za-z][A-Za-z0-9-]{0,75}"),
    reserved=frozenset(
        {
            "authentication-results",
            "bcc",
            "cc",
            "date",
            "delivered-to",
            "dkim-signature",
            "from",
            "message-id",
            "mime-version",
            "received",
            "reply-to",
            "return-path",
            "sender",
            "subject",
            "to",
        }
    ),
    prefixes=("arc-", "content-", "resent-", "received-"),
    value_max_chars=900,  # With its name below the 998 of a line: it is sent unfolded.
)

Addresses = str | list[str]
FileName = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]


class Attachment(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the bytes of an attachment are: one of `file` and `url`.

    >>> Attachment(file="invoices/7.pdf").file_name
    '7.pdf'
    >>> Attachment(file="../secret")
    Traceback (most recent call last):
    ...
    chronos_runtime.errors.InputError: attachments: file must be a path below \
email.attachments_dir, like invoices/7.pdf
    """

    file: str | None = None
    """Below `[email] attachments_dir` of the worker."""
    url: str | None = None
    """An https URL that the egress lets through; stored with the job and shown with it."""
    name: FileName | None = None
    """What the reader sees; by default the last part of `file` or `url`."""
    content_type: str | None = None
    """By default what the name suggests."""

    def __post_init__(self) -> None:
        """Refuse what leads out of the directory by its text; the file system is asked later."""
        if (self.file is None) == (self.url is None):
            raise InputError("attachments: each has either file or url")
        if self.file is not None:
            _check_path(self.file)
        if self.url is not None:
            Target.of(self.url, "attachments")
        name = self.file_name
        if CONTROLS.search(name) or re.search(r"[/\\]|=\?", name):
            raise InputError("attachments: name must be one line without slashes and =?")
        if self.content_type is not None and not _TYPE.fullmatch(self.content_type):
            raise InputError("attachments: content_type must be like application/pdf")

    @property
    def file_name(self) -> str:
        """What the reader sees."""
        if self.name is not None:
            return self.name
        path = self.file or Target.of(self.url, "attachments").path.partition("?")[0]
        return path.rstrip("/").rpartition("/")[2][-200:] or "attachment"


class EmailMessage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An e-mail for `chronos.email`.

    >>> EmailMessage(to="Ada <ada@example.org>", subject="Hello", text="Hello, Ada.").recipients
    ['ada@example.org']
    >>> EmailMessage(to="ada@example.org", subject="Hello\\r\\nBcc: eve@example.org", text="")
    Traceback (most recent call last):
    ...
    chronos_runtime.errors.InputError: subject: must be one line of up to 500 characters
    """

    to: Addresses = []
    """One address or a list, each `user@example.org` or `Name <user@example.org>`."""
    cc: Addresses = []
    bcc: Addresses = []
    subject: str
    text: str | None = None
    html: str | None = None
    """One of the two, or both: then readers choose."""
    sender: str | None = None
    """By default `[email] sender`."""
    reply_to: Addresses = []
    headers: dict[str, str] = {}
    """Others than the fields have; printable ASCII, sent as they are."""
    attachments: Annotated[list[Attachment], msgspec.Meta(max_length=ATTACHMENTS_MAX)] = []

    def __post_init__(self) -> None:
        """Refuse at enqueue what no relay would take, or what would take the relay in."""
        for field in ("to", "cc", "bcc", "reply_to"):
            self.mailboxes(field)
        if self.sender is not None:
            Mailbox.of(self.sender, "sender")
        if not 1 <= len(self.recipients) <= RECIPIENTS_MAX:
            raise InputError(f"to: give 1 to {RECIPIENTS_MAX} recipients in to, cc and bcc")
        if CONTROLS.search(self.subject) or len(self.subject) > SUBJECT_MAX_CHARS:
            raise InputError(f"subject: must be one line of up to {SUBJECT_MAX_CHARS} characters")
        if self.text is None and self.html is None:
            raise InputError("text: give text, html or both")
        _HEADERS.check(self.headers)

    def mailboxes(self, field: str) -> list[Mailbox]:
        """The mailboxes of one field."""
        given: Addresses = getattr(self, field)
        return [Mailbox.of(one, field) for one in ([given] if isinstance(given, str) else given)]

    @property
    def recipients(self) -> list[str]:
        """Every address the relay is given, once each."""
        found = (box.address for field in ("to", "cc", "bcc") for box in self.mailboxes(field))
        return list(dict.fromkeys(found))


def _check_path(path: str) -> None:
    parts = path.split("/")
    if (
        not path
        or len(path) > FILE_MAX_CHARS
        or CONTROLS.search(path)
        or "\\" in path
        or any(part in ("", ".", "..") for part in parts)
    ):
        raise InputError(
            "attachments: file must be a path below email.attachments_dir, like invoices/7.pdf"
        )
