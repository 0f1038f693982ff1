"""A URL taken apart by the strictest reading, and put together again in one spelling.

Programs disagree about odd URLs, and whoever checks with one reading and connects with another
can be sent anywhere. So nothing odd is read at all: no user names, backslashes, fragments,
control characters, or characters beyond ASCII; no number that some programs take for an address
(2130706433, 0x7f.1, 127.1, 0177.0.0.1), no trailing dot, no zone. What is sent is the target
written out anew, never the text that was given.
"""

import re

import msgspec

from chronos_runtime.errors import InputError
from chronos_runtime.processors.addresses import Address, read_address

URL_MAX_CHARS = 2_000
DEFAULT_PORTS = {"http": 80, "https": 443}

_URL = re.compile(r"(https?)://([^/?#]+)(/[^?#]*)?(\?[^#]*)?", re.IGNORECASE)
_ALLOWED = re.compile(r"[!$&'()*+,\-./0-9:;=?@A-Z\[\]_a-z~%]+")
_AUTHORITY = re.compile(r"(\[[0-9a-f:.]+\]|[^:\[\]]+)(?::([1-9][0-9]{0,4}))?", re.IGNORECASE)
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_NAME_MAX_CHARS = 253


class Target(msgspec.Struct, frozen=True):
    """Where a request goes.

    >>> Target.of("HTTPS://Example.org:443/hook?x=1")
    Target(scheme='https', host='example.org', port=443, path='/hook?x=1')
    >>> Target.of("https://example.org:8443/hook").url
    'https://example.org:8443/hook'
    >>> Target.of("https://0x7f.1/")
    Traceback (most recent call last):
    ...
    chronos_runtime.errors.InputError: url: the host is a number that programs read differently; \
write the address as 203.0.113.7 or [2001:db8::7]
    """

    scheme: str
    host: str
    """A name in lower case, or an address without brackets."""
    port: int
    path: str

    @classmethod
    def of(cls, url: object, field: str = "url") -> "Target":
        """The target of a URL. Errors never repeat the URL, which may hold a token."""
        if not isinstance(url, str) or not url or len(url) > URL_MAX_CHARS:
            raise InputError(f"{field}: must be text of up to {URL_MAX_CHARS} characters")
        found = _URL.fullmatch(url)
        if found is None or not _ALLOWED.fullmatch(url):
            raise InputError(
                f"{field}: must be https://host/path, without a fragment; other characters than a"
                " URL's own are percent-encoded in a path and punycode (xn--…) in a host"
            )
        scheme, authority, path, query = found.groups(default="")
        if "@" in authority:
            raise InputError(f"{field}: holds a user name or password; use a header instead")
        parts = _AUTHORITY.fullmatch(authority)
        if parts is None or int(parts[2] or 0) > 65_535:
            raise InputError(f"{field}: the host and port are not written as host or host:port")
        scheme = scheme.lower()
        port = int(parts[2]) if parts[2] else DEFAULT_PORTS[scheme]
        return cls(scheme, checked_host(parts[1], field), port, (path or "/") + query)

    @property
    def url(self) -> str:
        """The target in its one spelling."""
        return f"{self.scheme}://{self.authority}{self.path}"

    @property
    def authority(self) -> str:
        """What the receiver gets to see as `Host`."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def address(self) -> Address | None:
        """The address, if the host is one and no name."""
        return read_address(self.host)


def checked_host(host: str, field: str) -> str:
    """A host in its one spelling: a name in lower case, or an address.

    >>> checked_host("Example.ORG", "url"), checked_host("[2606:4700::0001]", "url")
    ('example.org', '2606:4700::1')
    """
    if host.startswith("["):
        address = read_address(host[1:-1])
        if address is None or address.version != 6:
            raise InputError(f"{field}: {host} is no IPv6 address")
        return str(address)
    name = host.lower()
    labels = name.split(".")
    if _NUMBER.fullmatch(labels[-1]):
        if read_address(name) is None:
            raise InputError(
                f"{field}: the host is a number that programs read differently;"
                " write the address as 203.0.113.7 or [2001:db8::7]"
            )
        return name
    if len(name) > _NAME_MAX_CHARS or not all(_LABEL.fullmatch(label) for label in labels):
        raise InputError(
            f"{field}: {host!r} is no host name; letters, digits, hyphens and dots are,"
            " without a dot at the end"
        )
    return name
