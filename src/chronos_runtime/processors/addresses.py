"""Which addresses are the public internet, by tables of our own.

`ipaddress.is_global` changed its mind between patch releases of Python; what may be reached must
not. The tables are IANA's special-purpose registries, read strictly: IPv6 is public only within
2000::/3, and addresses that carry an IPv4 address inside (mapped, 6to4, Teredo) are not, but for
NAT64, which networks without IPv4 of their own need, and which is judged by what it carries.
"""

from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
)

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_NOT_PUBLIC_4 = tuple(
    IPv4Network(text)
    for text in (
        "0.0.0.0/8",  # this host; Linux connects 0.0.0.0 to itself
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # shared by carriers; also Alibaba's metadata
        "127.0.0.0/8",  # loopback
        "168.63.129.16/32",  # Azure's own services, at an address that looks public
        "169.254.0.0/16",  # link-local: the metadata of most clouds
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocol assignments; also Oracle's metadata
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # 6to4 relays, abolished
        "192.168.0.0/16",  # private
        "198.18.0.0/15",  # benchmarking
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and broadcast
    )
)
_PUBLIC_6 = IPv6Network("2000::/3")
_NOT_PUBLIC_6 = tuple(
    IPv6Network(text)
    for text in (
        "2001::/23",  # protocol assignments: Teredo, benchmarking, ORCHID
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4
        "3fff::/20",  # documentation
    )
)
_NAT64 = IPv6Network("64:ff9b::/96")


def is_public(address: Address) -> bool:
    """Whether an address is one that anybody could reach.

    >>> is_public(ip_address("1.1.1.1")), is_public(ip_address("169.254.169.254"))
    (True, False)
    >>> is_public(ip_address("64:ff9b::1.1.1.1")), is_public(ip_address("64:ff9b::10.0.0.1"))
    (True, False)
    """
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _NOT_PUBLIC_4)
    if address.scope_id is not None:
        return False
    if address in _NAT64:
        return is_public(IPv4Address(int(address) & 0xFFFF_FFFF))
    return address in _PUBLIC_6 and not any(address in network for network in _NOT_PUBLIC_6)


def read_address(text: str) -> Address | None:
    """The address that `text` spells, if it spells one in the one usual way.

    >>> read_address("127.0.0.1"), read_address("0177.0.0.1"), read_address("2130706433")
    (IPv4Address('127.0.0.1'), None, None)
    """
    try:
        return ip_address(text)
    except ValueError:
        return None
