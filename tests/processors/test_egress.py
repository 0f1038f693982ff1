"""Who may be reached is decided by the text of a URL, by its addresses, and by the operator."""

from ipaddress import ip_address
from typing import Any

import pytest

from chronos_runtime.errors import ConfigError, InputError, TargetRefused
from chronos_runtime.processors.addresses import is_public
from chronos_runtime.processors.egress import Egress, checked_url, resolve_name
from chronos_runtime.processors.targets import URL_MAX_CHARS, Target

ALLOW = ["localhost:8080", "10.0.0.0/8", "fd00::/8", "internal.example.org", "[::1]:9090"]


def allowing(*allow: str, ports: tuple[int, ...] = ()) -> Egress:
    return Egress(ports=ports, allow=allow)


@pytest.mark.parametrize(
    "address",
    [
        "1.1.1.1",
        "8.8.8.8",
        "93.184.215.14",
        "172.15.255.255",
        "172.32.0.1",
        "100.63.255.255",
        "100.128.0.1",
        "192.167.255.255",
        "198.17.255.255",
        "198.20.0.0",
        "223.255.255.255",
        "2606:4700::1111",
        "2a00:1450:4001::1",
        "2001:200::1",
        "2003::1",
        "3ffe::1",
        "64:ff9b::8.8.8.8",
    ],
)
def test_the_public_internet_is_public(address: str) -> None:
    assert is_public(ip_address(address))


@pytest.mark.parametrize(
    ("url", "spelled"),
    [
        ("https://example.org", "https://example.org/"),
        ("HTTPS://EXAMPLE.org:443/A?b=C", "https://example.org/A?b=C"),
        ("https://example.org?x", "https://example.org/?x"),
        ("https://example.org/a/../b//c;d=e?f=[g]&h=%20@i:/", None),
        ("https://xn--bcher-kva.example/", None),
        ("https://a_b.example.org/", None),
        ("https://1.1.1.1/", None),
        ("https://[2606:4700::0:1111]/", "https://[2606:4700::1111]/"),
        ("https://1.1.1.1.example.org/", None),
        ("https://0x7f.example.org/", None),
    ],
)
def test_a_plain_url_is_accepted_in_one_spelling(url: str, spelled: str | None) -> None:
    assert checked_url(url, allowing()) == (spelled or url)


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost:8080/",
        "https://localhost:8080/",
        "http://10.1.2.3/",
        "https://10.255.0.1/",
        "https://[fd12::1]/",
        "http://internal.example.org/",
        "https://internal.example.org/",
        "https://[::1]:9090/",
        "https://example.org:8443/",
        "http://internal.example.org:8443/",
    ],
)
def test_what_the_operator_allows_may_be_reached(url: str) -> None:
    assert checked_url(url, allowing(*ALLOW, ports=(8443,))) == url


@pytest.mark.parametrize(
    ("url", "fix"),
    [
        ("http://localhost:8081/", "wake.allow"),
        ("https://localhost/", "wake.allow"),
        ("https://11.0.0.1:81/", "wake.ports"),
        ("https://10.0.0.1:81/", "wake.ports"),
        ("http://example.org/", "https only"),
        ("https://internal.example.org:81/", "wake.ports"),
        ("https://other.internal.example.org:80/", "wake.ports"),
        ("https://[::1]/", "wake.allow"),
        ("https://192.168.0.1/", "wake.allow"),
        ("https://[::ffff:10.0.0.1]/", "wake.allow"),
        ("https://[64:ff9b::10.0.0.1]/", "wake.allow"),
    ],
)
def test_what_it_does_not_allow_is_refused_with_the_setting_to_change(url: str, fix: str) -> None:
    with pytest.raises(TargetRefused, match=rf"^url: .*{fix}"):
        checked_url(url, allowing(*ALLOW, ports=(8443,)))


@pytest.mark.parametrize(
    "entry",
    [
        "",
        "10.0.0.1/8",
        "10.0.0.0/33",
        "host:0",
        "host:65536",
        "host:x",
        "a b",
        "https://x",
        "127.1",
        "host:",
        "*.example.org",
        "example.org.",
        "[::1",
        ":80",
    ],
)
def test_an_entry_that_allows_nothing_is_refused_by_name(entry: str) -> None:
    with pytest.raises(ConfigError, match=r"^wake\.allow: "):
        allowing(entry)


@pytest.mark.parametrize(
    "url", [None, 7, b"https://example.org", "", "https://e.org/" + "x" * 2_000]
)
def test_what_is_no_text_or_too_long_is_refused(url: Any) -> None:
    with pytest.raises(InputError, match=rf"^hook: .*{URL_MAX_CHARS}"):
        Target.of(url, "hook")


@pytest.mark.parametrize("user", ["canary", "ada:canary", ":canary", "canary:"])
def test_a_user_name_is_refused_as_one_and_not_repeated(user: str) -> None:
    with pytest.raises(InputError, match=r"^url: holds a user name or password") as caught:
        checked_url(f"https://{user}@example.org/", allowing())
    assert "canary" not in str(caught.value)


def test_a_refusal_never_repeats_what_may_be_a_token() -> None:
    for url in ("https://example.org/#canary", "ftp://example.org/canary", "https://7/?canary"):
        with pytest.raises(InputError) as caught:
            checked_url(url, allowing())
        assert "canary" not in str(caught.value)


async def test_an_allowed_name_may_have_any_address_and_another_may_not() -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return ["10.0.0.7", "10.0.0.7", "10.0.0.8"]

    named = Egress(ports=[], allow=["db.example.org:5000"], resolve=resolve)
    assert await named.vetted("db.example.org", 5000) == ["10.0.0.7", "10.0.0.8"]
    for host, port in (("db.example.org", 443), ("other.example.org", 5000)):
        with pytest.raises(TargetRefused):
            await named.vetted(host, port)
    network = Egress(ports=[], allow=["10.0.0.0/24"], resolve=resolve)
    assert await network.vetted("any.example.org", 443) == ["10.0.0.7", "10.0.0.8"]


async def test_names_are_resolved_by_the_operating_system() -> None:
    assert {"127.0.0.1", "::1"} & set(await resolve_name("localhost", 443))
    with pytest.raises(TargetRefused, match="not a public address"):
        await allowing().vetted("localhost", 443)
