"""Headers that people may add to what we send: how many, which, and what may stand in them."""

import re
from collections.abc import Mapping

import msgspec

from chronos_runtime.errors import InputError

HEADERS_MAX = 20

# No control character, and so no line break: what would follow it could be a header of its own.
_VALUE = re.compile(r"[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?")


class HeaderRules(msgspec.Struct, frozen=True, kw_only=True):
    """What goes for the headers of one protocol.

    >>> rules = HeaderRules(
    ...     name=re.compile("[A-Za-z-]+"),
    ...     reserved=frozenset({"host"}),
    ...     prefixes=("proxy-",),
    ...     value_max_chars=100,
    ... )
    >>> rules.check({"Host": "example.org"})
    Traceback (most recent call last):
    ...
    chronos_runtime.errors.InputError: headers: Host is not yours to set; leave it out
    """

    name: re.Pattern[str]
    reserved: frozenset[str]
    """Ours to write, or the business of those on the way; in lower case."""
    prefixes: tuple[str, ...]
    value_max_chars: int

    def check(self, headers: Mapping[str, str]) -> None:
        """Refuse headers that are too many, ours, or none."""
        if len(headers) > HEADERS_MAX:
            raise InputError(f"headers: more than {HEADERS_MAX}")
        if len({name.lower() for name in headers}) < len(headers):
            raise InputError("headers: one stands there twice")
        for name, value in headers.items():
            lowered = name.lower()
            if not self.name.fullmatch(name):
                raise InputError(f"headers: {name[:100]!r} is no name of a header")
            if lowered in self.reserved or lowered.startswith(self.prefixes):
                raise InputError(f"headers: {name} is not yours to set; leave it out")
            if len(value) > self.value_max_chars or not _VALUE.fullmatch(value):
                raise InputError(
                    f"headers: the value of {name} must be 1 to {self.value_max_chars} printable"
                    " ASCII characters"
                )
