"""A mailbox as people write one, `Ada Lovelace <ada@example.org>`, read strictly.

Addresses are ASCII, without quotes, comments, routes or address literals: what is odd is a typing
error or an attack, and programs along the way would read it differently. Nothing that could end
a line or a command of SMTP gets through, and names cannot reorder the text around them.
"""

import re

import msgspec

from chronos_runtime.errors import InputError
from chronos_runtime.logs import CONTROLS
from chronos_runtime.processors.targets import checked_host

NAME_MAX_CHARS = 200
ADDRESS_MAX_CHARS = 254  # RFC 5321: a path has 256, two of which are < and >.

_ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
_LOCAL = re.compile(rf"{_ATOM}(\.{_ATOM})*")
_LOCAL_MAX_CHARS = 64
_NAMED = re.compile(r"(?P<name>[^<>]*[^<>\s])\s*<(?P<address>[^<>]*)>")


class Mailbox(msgspec.Struct, frozen=True):
    """A name, perhaps empty, and an address.

    >>> Mailbox.of("Ada Lovelace <ada@Example.org>", "to")
    Mailbox(name='Ada Lovelace', address='ada@example.org')
    >>> Mailbox.of("ada@example.org, bob@example.org", "to")
    Traceback (most recent call last):
    ...
    chronos_runtime.errors.InputError: to: must be user@example.org or Name <user@example.org>, \
one address each, in ASCII
    """

    name: str
    address: str

    @classmethod
    def of(cls, text: str, field: str) -> "Mailbox":
        """The mailbox that `text` spells. Errors do not repeat it: it is somebody's."""
        found = _NAMED.fullmatch(text)
        name, address = (found["name"].strip(), found["address"]) if found else ("", text)
        if len(name) > 1 and name[0] == name[-1] == '"':
            name = re.sub(r"\\(.)", r"\1", name[1:-1])
        if CONTROLS.search(text) or len(name) > NAME_MAX_CHARS:
            raise InputError(
                f"{field}: must be one line, and the name in it up to {NAME_MAX_CHARS} characters"
            )
        return cls(name, _checked_address(address, field))

    @property
    def domain(self) -> str:
        """What stands after the @."""
        return self.address.rpartition("@")[2]


def _checked_address(address: str, field: str) -> str:
    local, at, domain = address.rpartition("@")
    try:
        host = checked_host(domain, field)
    except InputError:
        host = ""
    if (
        not at
        or not address.isascii()
        or not _LOCAL.fullmatch(local)
        or len(local) > _LOCAL_MAX_CHARS
        or len(address) > ADDRESS_MAX_CHARS
        or not host
        or ":" in host
    ):
        raise InputError(
            f"{field}: must be user@example.org or Name <user@example.org>, one address each,"
            " in ASCII"
        )
    return f"{local}@{host}"
