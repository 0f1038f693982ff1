"""What a text message says, as enqueued or as a `before_handler` made it; checked in both cases."""

import re

import msgspec

from chronos_runtime.errors import InputError

SMS_KIND = "chronos.sms"
TEXT_MAX_CHARS = 1_600  # Ten parts of a long message; providers take no more.

_NUMBER = re.compile(r"\+[1-9][0-9]{6,14}")
_SENDER = re.compile(r"\+?[0-9]{3,15}|(?=.*[A-Za-z])[A-Za-z0-9 ._&-]{1,11}")
# Line breaks belong to a text; whatever else is below a space, or DEL, no telephone shows.
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class SmsMessage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A text message for `chronos.sms`.

    >>> SmsMessage(to="+4915112345678", text="Your parcel is here.").sender is None
    True
    >>> SmsMessage(to="0151 12345678", text="Hello")
    Traceback (most recent call last):
    ...
    chronos_runtime.errors.InputError: to: must be an international number without spaces, \
like +4915112345678
    """

    to: str
    text: str
    sender: str | None = None
    """A number or up to eleven letters and digits; by default `[sms] sender`."""

    def __post_init__(self) -> None:
        """Refuse at enqueue what no provider would take. Errors do not repeat the number."""
        if not _NUMBER.fullmatch(self.to):
            raise InputError(
                "to: must be an international number without spaces, like +4915112345678"
            )
        if not 1 <= len(self.text) <= TEXT_MAX_CHARS or _CONTROLS.search(self.text):
            raise InputError(
                f"text: must be 1 to {TEXT_MAX_CHARS} characters without control characters"
            )
        if self.sender is not None:
            checked_sender(self.sender, "sender")


def checked_sender(sender: str, field: str) -> str:
    """`sender`, once a telephone could show it."""
    if not _SENDER.fullmatch(sender):
        raise InputError(
            f"{field}: must be a number, or up to eleven letters, digits and spaces of which one"
            " is a letter"
        )
    return sender
