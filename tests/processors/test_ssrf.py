"""No URL leads inside: a corpus of them, a lying resolver, a listener that hears nothing."""

import socket
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpcore
import httpx
import pytest

from chronos_runtime.errors import DeliveryFailed, InputError, TargetRefused
from chronos_runtime.job import Discard
from chronos_runtime.processors.dialer import VettedBackend
from chronos_runtime.processors.egress import Egress, checked_url
from chronos_runtime.processors.wake_payload import WakePayload
from tests.processors.conftest import MakeWake, make_job
from tests.processors.receiver import Detour, Receiver, answer

CORPUS_MIN = 200
LINES = (Path(__file__).parent / "ssrf_corpus.txt").read_text(encoding="ascii").splitlines()
CORPUS = [line for line in LINES if line and not line.startswith("#")]
PUBLIC = "93.184.215.14"
# In the corpus for their ports, or for a spelling that leads one program here and another there.
HARMLESS = {"1.1.1.1", "2606:4700::1111", "8.8.8.8"}


async def resolve_inside(host: str, port: int) -> list[str]:
    """As libc reads numbers, octal and short ones too; every name is this machine's."""
    try:
        found = socket.getaddrinfo(host, port, flags=socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):
        return ["127.0.0.1"]
    return [str(sockaddr[0]) for *_, sockaddr in found]


def written(line: str, port: int) -> str:
    url = line.encode("ascii").decode("unicode_escape")
    return url.replace("{port}", str(port))


def as_others_read(url: str) -> set[tuple[str, int]]:
    """The hosts and ports that two well-known parsers find in a URL."""
    found = set()
    for parse in (urlsplit, httpx.URL):
        try:
            parts: Any = parse(url)
            found.add((str(parts.hostname if parse is urlsplit else parts.host), parts.port or 443))
        except (ValueError, TypeError, httpx.InvalidURL):
            continue
    return {(host, port) for host, port in found if host and host != "None"}


def test_the_corpus_is_large_and_says_everything_once() -> None:
    assert len(CORPUS) == len(set(CORPUS)) >= CORPUS_MIN


async def test_the_trap_would_hear_a_connection(receiver: Receiver, make_wake: MakeWake) -> None:
    detour = Detour(receiver.port)
    wake = make_wake({"allow": ["127.0.0.0/8"], "ports": [receiver.port]}, network=detour)
    await wake(make_job(), WakePayload(url=f"http://127.0.0.1:{receiver.port}/"))
    assert detour.dialled == [("127.0.0.1", receiver.port)]
    assert receiver.connections == 1


@pytest.mark.parametrize("line", CORPUS)
async def test_no_url_of_the_corpus_is_dialled(
    line: str, receiver: Receiver, make_wake: MakeWake
) -> None:
    url = written(line, receiver.port)
    detour = Detour(receiver.port)
    wake = make_wake({"ports": [receiver.port]}, network=detour, resolve=resolve_inside)
    try:
        payload = WakePayload(url=url)
    except InputError:
        with pytest.raises(InputError):
            checked_url(url, wake.egress)
    else:
        decision = await wake(make_job(), payload)
        assert isinstance(decision, Discard)
        assert decision.reason.startswith("refused: ")
    assert detour.dialled == []
    assert receiver.connections == 0


@pytest.mark.parametrize("line", CORPUS)
async def test_the_door_alone_would_hold_whoever_read_the_url(
    line: str, receiver: Receiver
) -> None:
    detour = Detour(receiver.port)
    ports = [receiver.port, 80, 443]
    door = VettedBackend(Egress(ports=ports, allow=[], resolve=resolve_inside), detour)
    for host, port in as_others_read(written(line, receiver.port)):
        if HARMLESS.issuperset(await resolve_inside(host, port)):
            continue
        with pytest.raises((TargetRefused, httpcore.ConnectError)):
            await door.connect_tcp(host, port)
    assert detour.dialled == []
    assert receiver.connections == 0


async def test_the_door_has_no_way_to_a_unix_socket() -> None:
    door = VettedBackend(Egress(ports=[], allow=[]))
    with pytest.raises(TargetRefused):
        await door.connect_unix_socket("/var/run/docker.sock")


async def test_a_name_that_changes_its_address_is_judged_by_the_address_that_is_dialled(
    make_wake: MakeWake,
) -> None:
    answers = [[PUBLIC], ["127.0.0.1"], [PUBLIC]]
    asked: list[str] = []

    async def rebind(host: str, port: int) -> list[str]:
        asked.append(host)
        return answers[len(asked) - 1]

    detour = Detour(None)
    wake = make_wake({}, network=detour, resolve=rebind)
    payload = WakePayload(url="https://rebind.example.org/")
    with pytest.raises(DeliveryFailed, match="unreachable: rebind"):
        await wake(make_job(), payload)
    # One resolution for one connection: there was no second answer to be fooled by.
    assert (asked, detour.dialled) == (["rebind.example.org"], [(PUBLIC, 443)])
    decision = await wake(make_job(), payload)
    assert isinstance(decision, Discard)
    assert detour.dialled == [(PUBLIC, 443)]


@pytest.mark.parametrize(
    "addresses",
    [[PUBLIC, "127.0.0.1"], ["10.0.0.1", PUBLIC], [PUBLIC, "::1"], ["fe80::1%eth0"], ["nonsense"]],
    ids=str,
)
async def test_one_bad_address_spoils_the_name(
    addresses: list[str], receiver: Receiver, make_wake: MakeWake
) -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return addresses

    detour = Detour(receiver.port)
    wake = make_wake({}, network=detour, resolve=resolve)
    decision = await wake(make_job(), WakePayload(url="https://both.example.org/"))
    assert isinstance(decision, Discard)
    assert detour.dialled == []


@pytest.mark.parametrize("status", [300, 301, 302, 303, 307, 308])
async def test_a_redirect_is_a_failure_and_leads_nowhere(
    status: int, receiver: Receiver, make_wake: MakeWake
) -> None:
    async with Receiver().serve() as trap:
        receiver.answers = [answer(status, f"Location: http://127.0.0.1:{trap.port}/")]
        here = f"127.0.0.1:{receiver.port}"
        wake = make_wake({"allow": [here, f"127.0.0.1:{trap.port}"]})
        with pytest.raises(DeliveryFailed, match=f"redirected: 127.0.0.1: {status} "):
            await wake(make_job(), WakePayload(url=f"http://{here}/"))
        assert (receiver.connections, trap.connections) == (1, 0)


async def test_no_proxy_of_the_environment_gets_to_see_a_delivery(
    receiver: Receiver, make_wake: MakeWake, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Receiver().serve() as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        here = f"127.0.0.1:{receiver.port}"
        await make_wake({"allow": [here]})(make_job(), WakePayload(url=f"http://{here}/"))
        assert (receiver.connections, proxy.connections) == (1, 0)
