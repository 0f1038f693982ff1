"""A receiver of wakes on loopback: it keeps what it got and answers what it was told to."""

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable
from contextlib import asynccontextmanager
from typing import NamedTuple

import anyio
import httpcore
from anyio.abc import ByteStream, Listener
from anyio.streams.buffered import BufferedByteReceiveStream
from anyio.streams.tls import TLSListener

HEAD_MAX_BYTES = 65_536
ENDS = (
    anyio.EndOfStream,
    anyio.IncompleteRead,
    anyio.BrokenResourceError,
    anyio.ClosedResourceError,
    ssl.SSLError,
)

Speak = Callable[[ByteStream], Awaitable[None]]


class Received(NamedTuple):
    """A request, as it came."""

    line: str
    headers: dict[str, str]
    body: bytes


def answer(status: int, *headers: str, body: bytes = b"") -> bytes:
    """An answer, written out."""
    lines = [f"HTTP/1.1 {status} Whatever", *headers, f"Content-Length: {len(body)}", "", ""]
    return "\r\n".join(lines).encode() + body


class Receiver:
    """Answers with what is in `answers`, one after the other; the last goes on for ever."""

    def __init__(self) -> None:
        self.answers: list[bytes | Speak] = [answer(204)]
        self.received: list[Received] = []
        self.connections = 0
        self.names: list[str | None] = []
        """What TLS clients asked for by SNI."""
        self.port = 0

    def _answer(self, got: Received) -> bytes | Speak:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    async def _serve(self, stream: ByteStream) -> None:
        self.connections += 1
        coming = BufferedByteReceiveStream(stream)
        async with stream:
            try:
                while True:
                    self.received.append(await _request(coming))
                    speak = self._answer(self.received[-1])
                    if isinstance(speak, bytes):
                        await stream.send(speak)
                    else:
                        await speak(stream)
            except ENDS:
                return

    @asynccontextmanager
    async def serve(
        self, tls: ssl.SSLContext | None = None, port: int = 0
    ) -> AsyncIterator["Receiver"]:
        """Receive beside the block."""
        tcp = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=port)
        self.port = tcp.extra(anyio.abc.SocketAttribute.local_port)
        listener: Listener[ByteStream] = tcp
        if tls is not None:
            tls.sni_callback = lambda _, name, __: self.names.append(name)
            listener = TLSListener(tcp, tls, standard_compatible=False)
        async with listener, anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, self._serve)
            yield self
            tasks.cancel_scope.cancel()


async def _request(coming: BufferedByteReceiveStream) -> Received:
    head = (await coming.receive_until(b"\r\n\r\n", HEAD_MAX_BYTES)).decode()
    line, *fields = head.split("\r\n")
    headers = {name.lower(): value for name, value in (one.split(": ", 1) for one in fields)}
    body = await coming.receive_exactly(int(headers.get("content-length", "0")))
    return Received(line, headers, body)


class Detour(httpcore.AsyncNetworkBackend):
    """Notes every address that is dialled, and leads to one port here, or nowhere."""

    def __init__(self, port: int | None, deaf: Collection[str] = ()) -> None:
        self.dialled: list[tuple[str, int]] = []
        self._deaf = deaf
        self._port = port
        self._network = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - as the pool gives it
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        self.dialled.append((host, port))
        if self._port is None or host in self._deaf:
            raise httpcore.ConnectError
        return await self._network.connect_tcp("127.0.0.1", self._port, timeout)
