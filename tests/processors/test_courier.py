"""A receiver that is slow, broken, lying or away costs a bounded time and says why."""

import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import closing

import anyio
import pytest
import trustme
from anyio.abc import ByteStream

from chronos_runtime.errors import DeliveryFailed
from chronos_runtime.job import Snooze
from chronos_runtime.processors.wake import Wake
from chronos_runtime.processors.wake_payload import WakePayload
from tests.eventually import eventually
from tests.processors.conftest import MakeWake, make_job
from tests.processors.receiver import Detour, Receiver, answer

PUBLIC = "93.184.215.14"
SOON_S = 5.0  # What takes far less; the deliveries below would else take fifteen, or for ever.


async def resolve_public(host: str, port: int) -> list[str]:
    return [PUBLIC]


async def never(stream: ByteStream) -> None:
    await anyio.sleep_forever()


def to(receiver: Receiver, timeout_s: float | None = None) -> WakePayload:
    return WakePayload(url=f"http://127.0.0.1:{receiver.port}/", timeout_s=timeout_s)


@pytest.fixture
def wake(receiver: Receiver, make_wake: MakeWake) -> Wake:
    return make_wake({"allow": [f"127.0.0.1:{receiver.port}"]})


async def test_a_receiver_that_never_answers_is_left(
    receiver: Receiver, make_wake: MakeWake
) -> None:
    receiver.answers = [never]
    wake = make_wake({"allow": [f"127.0.0.1:{receiver.port}"], "timeout_s": 0.2})
    trouble = r"timeout: 127\.0\.0\.1: no answer within 0\.2 s"
    with anyio.fail_after(SOON_S), pytest.raises(DeliveryFailed, match=trouble):
        await wake(make_job(), to(receiver))


async def test_a_payload_may_have_its_own_patience(receiver: Receiver, wake: Wake) -> None:
    receiver.answers = [never]
    with anyio.fail_after(SOON_S), pytest.raises(DeliveryFailed, match=r"answer within 0\.1 s"):
        await wake(make_job(), to(receiver, 0.1))


async def test_headers_that_drip_do_not_stretch_the_time(receiver: Receiver, wake: Wake) -> None:
    async def drip(stream: ByteStream) -> None:
        await stream.send(b"HTTP/1.1 200 OK\r\n")
        while True:
            await stream.send(b"X: y\r\n")
            await anyio.sleep(0.02)

    receiver.answers = [drip]
    with anyio.fail_after(SOON_S), pytest.raises(DeliveryFailed, match="timeout"):
        await wake(make_job(), to(receiver, 0.2))


async def test_a_status_stands_however_slowly_the_rest_drips(
    receiver: Receiver, make_wake: MakeWake
) -> None:
    async def drip(stream: ByteStream) -> None:
        await stream.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
        while True:
            await stream.send(b"x")
            await anyio.sleep(0.02)

    receiver.answers = [drip]
    wake = make_wake({"allow": [f"127.0.0.1:{receiver.port}"]})
    with anyio.fail_after(SOON_S):
        assert await wake(make_job(), to(receiver)) == {"answer": "200 OK"}


@pytest.mark.parametrize("frame", [b"Content-Length: 999999999999", b"Transfer-Encoding: chunked"])
async def test_an_answer_without_end_is_read_up_to_its_bound(
    frame: bytes, receiver: Receiver, make_wake: MakeWake
) -> None:
    sent = 0

    async def pour(stream: ByteStream) -> None:
        nonlocal sent
        await stream.send(b"HTTP/1.1 200 OK\r\n" + frame + b"\r\n\r\n")
        chunk = b"10000\r\n" + b"x" * 65_536 + b"\r\n"
        while True:
            await stream.send(chunk)
            sent += len(chunk)

    receiver.answers = [pour, answer(204)]
    wake = make_wake({"allow": [f"127.0.0.1:{receiver.port}"]})
    with anyio.fail_after(SOON_S):
        assert await wake(make_job(), to(receiver)) == {"answer": "200 OK"}
    assert sent < 32 * 1024 * 1024  # What the buffers of the sockets take, and not the whole.
    # The rest was left unread, so that connection cannot be used again.
    await wake(make_job(), to(receiver))
    assert receiver.connections == 2


@pytest.mark.parametrize(
    "noise",
    [b"", b"hello\r\n\r\n", b"HTTP/1.1 banana\r\n\r\n", b"HTTP/1.1 200 OK\r\nX: " + b"y" * 200_000],
    ids=len,
)
async def test_what_is_not_http_is_a_failed_attempt(
    noise: bytes, receiver: Receiver, wake: Wake
) -> None:
    async def speak(stream: ByteStream) -> None:
        await stream.send(noise)
        await stream.aclose()

    receiver.answers = [speak]
    with pytest.raises(DeliveryFailed, match=r"^(invalid_answer|unreachable): 127\.0\.0\.1: "):
        await wake(make_job(), to(receiver))


async def test_a_port_where_nobody_listens_is_unreachable(make_wake: MakeWake) -> None:
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        wake = make_wake({"allow": [f"127.0.0.1:{port}"]})
        with pytest.raises(DeliveryFailed, match=r"^unreachable: 127\.0\.0\.1: "):
            await wake(make_job(), WakePayload(url=f"http://127.0.0.1:{port}/"))


async def test_a_name_that_does_not_resolve_is_unreachable_and_comes_back(
    make_wake: MakeWake,
) -> None:
    async def resolve(host: str, port: int) -> list[str]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    with pytest.raises(DeliveryFailed, match=r"^unreachable: no\.example\.org: Name or service"):
        await make_wake({}, resolve=resolve)(make_job(), WakePayload(url="https://no.example.org/"))


async def test_a_resolver_that_hangs_costs_no_more_than_a_connection_may(
    make_wake: MakeWake,
) -> None:
    async def resolve(host: str, port: int) -> list[str]:
        await anyio.sleep_forever()
        raise AssertionError

    wake = make_wake({"connect_s": 0.1}, resolve=resolve)
    with anyio.fail_after(SOON_S):
        with pytest.raises(DeliveryFailed, match=r"timeout: .*no connection within 0\.1 s"):
            await wake(make_job(), WakePayload(url="https://slow.example.org/"))


async def test_the_next_address_is_dialled_when_one_does_not_answer(
    receiver: Receiver, make_wake: MakeWake
) -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return [f"1.0.0.{number}" for number in range(1, 9)]

    detour = Detour(receiver.port, deaf={"1.0.0.1", "1.0.0.2"})
    wake = make_wake({"allow": ["many.example.org"]}, network=detour, resolve=resolve)
    await wake(make_job(), WakePayload(url="http://many.example.org/"))
    assert [host for host, _ in detour.dialled] == ["1.0.0.1", "1.0.0.2", "1.0.0.3"]


async def test_connections_are_kept_for_the_next_delivery_until_closed(
    receiver: Receiver, wake: Wake
) -> None:
    for _ in range(3):
        await wake(make_job(), to(receiver))
    assert (receiver.connections, len(receiver.received)) == (1, 3)
    await wake.aclose()
    await wake(make_job(), to(receiver))
    assert receiver.connections == 2


async def test_a_receiver_cannot_set_cookies(receiver: Receiver, wake: Wake) -> None:
    receiver.answers = [answer(200, "Set-Cookie: track=1; Path=/")]
    for _ in range(2):
        await wake(make_job(), to(receiver))
    assert "cookie" not in receiver.received[1].headers


async def test_no_host_gets_more_deliveries_at_once_than_it_may(
    receiver: Receiver, make_wake: MakeWake
) -> None:
    opened = anyio.Event()

    async def hold(stream: ByteStream) -> None:
        await opened.wait()
        await stream.send(answer(204))

    receiver.answers = [hold]
    allow = [f"127.0.0.1:{receiver.port}"]
    wake = make_wake({"allow": allow, "per_host": 2, "busy_wait_s": 0.05})
    decisions: list[object] = []

    async def deliver() -> None:
        decisions.append(await wake(make_job(), to(receiver)))

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(deliver)
        await eventually(lambda: len(decisions) == 3)
        assert all(isinstance(one, Snooze) and 5 <= one.for_s <= 10 for one in decisions)
        await eventually(lambda: len(receiver.received) == 2)
        opened.set()
    assert decisions[3:] == [{"answer": "204 No Content"}] * 2
    assert len(receiver.received) == 2
    assert wake._limiters == {}


async def test_a_delivery_that_is_stopped_gives_its_place_back(
    receiver: Receiver, make_wake: MakeWake
) -> None:
    receiver.answers = [never, answer(204)]
    wake = make_wake({"allow": [f"127.0.0.1:{receiver.port}"], "per_host": 1})
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wake, make_job(), to(receiver))
        await eventually(lambda: receiver.received)
        tasks.cancel_scope.cancel()
    assert wake._limiters == {}
    assert await wake(make_job(), to(receiver)) == {"answer": "204 No Content"}


class Secure:
    """A receiver with a certificate, and what a client needs to trust it."""

    def __init__(self, *names: str) -> None:
        self.authority = trustme.CA()
        self.server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.authority.issue_cert(*names).configure_cert(self.server)

    @property
    def client(self) -> ssl.SSLContext:
        context = ssl.create_default_context()
        self.authority.configure_trust(context)
        return context


@pytest.fixture
async def tls() -> AsyncIterator[tuple[Receiver, Secure]]:
    secure = Secure("hooks.example.org")
    async with Receiver().serve(secure.server) as receiver:
        yield receiver, secure


async def test_tls_and_host_speak_of_the_name_while_the_vetted_address_is_dialled(
    tls: tuple[Receiver, Secure], make_wake: MakeWake
) -> None:
    receiver, secure = tls
    detour = Detour(receiver.port)
    wake = make_wake({}, network=detour, resolve=resolve_public, ssl_context=secure.client)
    await wake(make_job(), WakePayload(url="https://Hooks.example.org/in"))
    assert detour.dialled == [(PUBLIC, 443)]
    assert receiver.names == ["hooks.example.org"]
    assert receiver.received[0].headers["host"] == "hooks.example.org"


@pytest.mark.parametrize(
    ("url", "is_trusted"),
    [("https://other.example.org/", True), ("https://hooks.example.org/", False)],
    ids=["of another name", "of an unknown authority"],
)
async def test_a_certificate_that_is_not_good_is_a_failed_attempt(
    url: str, is_trusted: bool, tls: tuple[Receiver, Secure], make_wake: MakeWake
) -> None:
    receiver, secure = tls
    context = secure.client if is_trusted else None
    detour = Detour(receiver.port)
    wake = make_wake({}, network=detour, resolve=resolve_public, ssl_context=context)
    with pytest.raises(DeliveryFailed, match=r"^unreachable: .*its certificate is not good: "):
        await wake(make_job(), WakePayload(url=url))
    assert receiver.received == []


async def test_tls_to_what_speaks_none_is_a_failed_attempt(
    receiver: Receiver, make_wake: MakeWake
) -> None:
    class Plain(Receiver):
        async def _serve(self, stream: ByteStream) -> None:
            await stream.receive()
            await stream.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            await stream.aclose()

    async with Plain().serve() as plain:
        wake = make_wake({}, network=Detour(plain.port), resolve=resolve_public)
        with pytest.raises(DeliveryFailed, match=r"^unreachable: .*TLS failed"):
            await wake(make_job(), WakePayload(url="https://plain.example.org/"))
