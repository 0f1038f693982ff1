"""Who may be reached: the public internet by https, and what the operator allows beside it.

A URL comes from whoever may create an alarm, and the process that posts to it stands inside. So
a URL is judged twice: by its text when it is accepted, and by the addresses its name has at the
moment of connecting. That second look is the one that counts, since only the vetted addresses
are dialled and no one asks the name again in between: an answer that changes (DNS rebinding)
changes nothing. A name is refused if any of its addresses is: one that is here and there at once
is a mistake or an attack, and to pick the good half would hide both.

`allow` names what is inside and may be reached all the same: `internal.example.org` (any address,
http too, on the ports 80, 443 and `ports`), `localhost:8080` (that port only), `10.0.0.0/8`
(whatever has such an address).
"""

import ipaddress
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence

import anyio

from chronos_runtime.errors import ConfigError, TargetRefused
from chronos_runtime.processors.addresses import Address, Network, is_public, read_address
from chronos_runtime.processors.targets import DEFAULT_PORTS, Target, checked_host

ADDRESSES_MAX = 16  # Of one name; nobody needs more, and each is judged.
_LOCAL_NAMES = (".localhost", ".local", ".internal", ".home.arpa", ".localdomain")

Resolve = Callable[[str, int], Awaitable[Iterable[str]]]


async def resolve_name(host: str, port: int) -> list[str]:
    """The addresses of a name, as the operating system gives them."""
    found = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(sockaddr[0]) for *_, sockaddr in found]


class Egress:
    """Judges targets.

    >>> egress = Egress(ports=[443], allow=["localhost:8080", "10.0.0.0/8"])
    >>> egress.check(Target.of("http://localhost:8080/hook"))
    >>> egress.check(Target.of("https://127.0.0.1/"))
    Traceback (most recent call last):
    ...
    chronos_runtime.errors.TargetRefused: 127.0.0.1 is not a public address; \
list it in wake.allow if it may be reached
    """

    def __init__(
        self,
        *,
        ports: Sequence[int],
        allow: Sequence[str],
        section: str = "wake",
        resolve: Resolve = resolve_name,
    ) -> None:
        self._section = section  # Of the config, for errors to name.
        self._ports = {*ports, DEFAULT_PORTS["https"]}
        self._resolve = resolve
        self._hosts: set[tuple[str, int | None]] = set()
        self._networks: list[Network] = []
        for entry in allow:
            self._allow(entry)

    def _allow(self, entry: str) -> None:
        try:
            if "/" in entry:
                self._networks.append(ipaddress.ip_network(entry))
            else:
                self._hosts.add(_host_and_port(entry))
        except ValueError as error:  # Also an InputError.
            raise ConfigError(
                f"{self._section}.allow: {entry!r} is neither host, host:port nor network ({error})"
            ) from error

    def check(self, target: Target) -> None:
        """Refuse by its text what must not be reached, whatever its name resolves to."""
        address = target.address
        is_named = self._is_named(target.host, target.port)
        is_allowed = is_named or (address is not None and self._is_in_networks(address))
        if address is not None:
            self._check_address(address, is_named=is_named)
        elif not is_named and ("." not in target.host or target.host.endswith(_LOCAL_NAMES)):
            raise TargetRefused(
                f"{target.host} is a local name; list it in {self._section}.allow if it may be"
                " reached"
            )
        if target.scheme == "http" and not is_allowed:
            raise TargetRefused(
                f"{target.host} may be reached by https only; http is for what"
                f" {self._section}.allow lists"
            )
        self._check_port(target.host, target.port, is_allowed=is_allowed)

    async def vetted(self, host: str, port: int) -> list[str]:
        """The addresses to dial for a host, each of them judged. The one resolution there is."""
        is_named = self._is_named(host, port)
        literal = read_address(host)
        found = [host] if literal is not None else await self._resolve(host, port)
        addresses = [_address(text) for text in dict.fromkeys(found)][:ADDRESSES_MAX]
        if not addresses:
            raise OSError(f"{host} has no address")
        is_allowed = is_named or all(self._is_in_networks(address) for address in addresses)
        self._check_port(host, port, is_allowed=is_allowed)
        for address in addresses:
            self._check_address(address, is_named=is_named)
        return [str(address) for address in addresses]

    def _is_named(self, host: str, port: int) -> bool:
        if (host, port) in self._hosts:
            return True
        return (host, None) in self._hosts and port in {*self._ports, *DEFAULT_PORTS.values()}

    def _is_in_networks(self, address: Address) -> bool:
        return any(address in network for network in self._networks)

    def _check_address(self, address: Address, *, is_named: bool) -> None:
        if not (is_named or is_public(address) or self._is_in_networks(address)):
            raise TargetRefused(
                f"{address} is not a public address; list it in {self._section}.allow if it may be"
                " reached"
            )

    def _check_port(self, host: str, port: int, *, is_allowed: bool) -> None:
        if port in self._ports or self._is_named(host, port):
            return
        if is_allowed and port == DEFAULT_PORTS["http"]:
            return
        raise TargetRefused(
            f"port {port} of {host} may not be reached; add it to {self._section}.ports,"
            f" or {host}:{port} to {self._section}.allow"
        )


def checked_url(url: str, egress: Egress, field: str = "url") -> str:
    """`url` in its one spelling, once it may be posted to.

    >>> checked_url("https://Example.org", Egress(ports=[], allow=[]))
    'https://example.org/'
    >>> checked_url("http://example.org", Egress(ports=[], allow=[]))
    Traceback (most recent call last):
    ...
    chronos_runtime.errors.TargetRefused: url: example.org may be reached by https only; \
http is for what wake.allow lists
    """
    target = Target.of(url, field)
    try:
        egress.check(target)
    except TargetRefused as error:
        raise TargetRefused(f"{field}: {error}") from error
    return target.url


def _host_and_port(entry: str) -> tuple[str, int | None]:
    """An entry of `allow` that is no network; `::1` may do without brackets."""
    if (address := read_address(entry)) is not None:
        return str(address), None
    host, colon, port = entry.rpartition(":")
    if not colon or entry.endswith("]"):
        return checked_host(entry, "host"), None
    if not port.isdecimal() or not 1 <= int(port) <= 65_535:
        raise ValueError(f"{port!r} is no port")
    return checked_host(host, "host"), int(port)


def _address(text: str) -> Address:
    """An address as a resolver spells it; a scope keeps it from being public."""
    address = read_address(text)
    if address is None:
        raise TargetRefused(f"the resolver answered {text!r}, which is no address")
    return address
