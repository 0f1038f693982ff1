"""A TCP proxy before Postgres that loses and delays replies, falls silent, and goes away.

It understands just enough of the wire protocol to know which statement a reply belongs to: a
frontend's Parse names a statement, its Bind runs one, its Query names and runs one at once, and
the backend's ReadyForQuery says that the work is done, committed, and only the news of it is still
on its way.
"""

import asyncio
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlsplit

import anyio
from anyio.abc import TaskGroup

CHUNK_BYTES = 65_536
HEADER_BYTES = 5  # One byte of type, four of length; the length counts itself, not the type.

DATA_ROW, READY_FOR_QUERY = b"D", b"Z"
PARSE, BIND, QUERY = b"P", b"B", b"Q"


@dataclass
class Trap:
    """Waits for some of the runs of one statement; what is sprung is lost."""

    mark: str
    """A piece of the statement's text that no other has."""
    nth: Collection[int]
    """Which runs, counted from 1: those that return rows, unless it has none to return."""
    has_rows: bool = True
    then: Callable[[], None] | None = None
    """What happens at that very moment."""
    runs: int = 0
    sprung: int = 0

    def catches(self, *, has_rows: bool) -> bool:
        """Count one run; whether this is one to catch."""
        if self.has_rows and not has_rows:
            return False
        self.runs += 1
        if self.runs not in self.nth:
            return False
        self.sprung += 1
        if self.then is not None:
            self.then()
        return True

    async def treat(self, reply: bytes) -> bytes:
        """What becomes of a caught reply; nothing means that the connection is cut."""
        return b""


@dataclass
class Delay(Trap):
    """A trap that holds the reply back until it is let go."""

    _let_go: anyio.Event = field(default_factory=anyio.Event)

    def let_go(self) -> None:
        self._let_go.set()

    async def treat(self, reply: bytes) -> bytes:
        await self._let_go.wait()
        return reply


@dataclass
class Loss(Trap):
    """A trap on the way there: the server never hears the statement."""


@dataclass
class Conversation:
    """One connection through the proxy."""

    client: tuple[StreamReader, StreamWriter]
    server: tuple[StreamReader, StreamWriter]
    is_started: bool = False
    unread: bytearray = field(default_factory=bytearray)
    """What the client has sent of a message that is not complete."""
    statements: dict[bytes, Trap] = field(default_factory=dict)
    watching: Trap | None = None
    """Set while the reply to a statement of interest is awaited."""


class Proxy:
    """Stands between workers and a server that listens on a Unix socket."""

    def __init__(self, socket_path: str, database: str, tasks: TaskGroup) -> None:
        self.port = 0
        self._socket_path = socket_path
        self._database = database
        self._tasks = tasks
        self._traps: list[Trap] = []
        self._scopes: set[anyio.CancelScope] = set()
        self._flows = anyio.Event()
        self._flows.set()
        self._accepts = True
        self.refused = 0

    @property
    def dsn(self) -> str:
        """The database, through this proxy."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/{self._database}?sslmode=disable"

    def swallow(
        self,
        mark: str,
        nth: Collection[int],
        *,
        has_rows: bool = True,
        then: Callable[[], None] | None = None,
    ) -> Trap:
        """Lose the reply of the nth runs of a statement, then cut its connection."""
        self._traps.append(trap := Trap(mark, nth, has_rows, then))
        return trap

    def lose(self, mark: str, nth: Collection[int]) -> Loss:
        """Cut the connection before the nth runs of a statement reach the server."""
        self._traps.append(loss := Loss(mark, nth, has_rows=False))
        return loss

    def delay(self, mark: str, nth: Collection[int]) -> Delay:
        """Hold the reply of the nth runs of a statement back."""
        self._traps.append(trap := Delay(mark, nth))
        return trap

    def fall_silent(self) -> None:
        """Take no byte from anybody; connections stay, new ones are accepted and hang."""
        self._flows = anyio.Event()

    def speak_again(self) -> None:
        self._flows.set()

    def refuse_new(self) -> None:
        """Close new connections at once; those there are go on."""
        self._accepts = False

    def go_away(self) -> None:
        """Refuse new connections and cut those there are."""
        self._accepts = False
        for scope in self._scopes:
            scope.cancel()

    def come_back(self) -> None:
        self._accepts = True

    def accept(self, reader: StreamReader, writer: StreamWriter) -> None:
        """Somebody connects."""
        if self._accepts:
            self._tasks.start_soon(self._serve, reader, writer)
        else:
            self.refused += 1
            writer.transport.abort()

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        """One connection's life: it ends when either side does, or when it is cut."""
        server = await asyncio.open_unix_connection(self._socket_path)
        talk = Conversation((reader, writer), server)
        try:
            async with anyio.create_task_group() as pumps:
                self._scopes.add(pumps.cancel_scope)
                pumps.start_soon(self._pump, pumps.cancel_scope, self._to_server, talk)
                pumps.start_soon(self._pump, pumps.cancel_scope, self._to_client, talk)
        finally:
            self._scopes.discard(pumps.cancel_scope)
            for side in (talk.client, talk.server):
                side[1].transport.abort()

    async def _pump(
        self,
        scope: anyio.CancelScope,
        carry: Callable[[Conversation], Awaitable[bool]],
        talk: Conversation,
    ) -> None:
        try:
            while await carry(talk):
                pass
        except OSError:
            pass  # The other side broke off: so do we.
        scope.cancel()

    async def _to_server(self, talk: Conversation) -> bool:
        """Carry one chunk; False at the end."""
        chunk = await self._receive(talk.client)
        talk.unread += chunk
        self._note_statements(talk, talk.unread)
        if isinstance(talk.watching, Loss) and talk.watching.catches(has_rows=False):
            return False
        await _send(talk.server, chunk)
        return chunk != b""

    async def _to_client(self, talk: Conversation) -> bool:
        """Carry one chunk, or one whole reply that may have to be lost; False at the end."""
        chunk = await self._receive(talk.server)
        if talk.watching is not None:
            chunk = await self._whole_reply(talk, talk.watching, chunk)
        await _send(talk.client, chunk)
        return chunk != b""

    async def _receive(self, side: tuple[StreamReader, StreamWriter]) -> bytes:
        await self._flows.wait()
        chunk = await side[0].read(CHUNK_BYTES)
        await self._flows.wait()  # Silence may have fallen meanwhile.
        return chunk

    def _note_statements(self, talk: Conversation, buffer: bytearray) -> None:
        if not talk.is_started:  # The first message has no type byte.
            length = int.from_bytes(buffer[:4])
            if len(buffer) < max(length, 4):
                return
            del buffer[:length]
            talk.is_started = True
        for kind, body in _messages(buffer):
            if kind == PARSE:
                name, text, _ = body.split(b"\0", 2)
                talk.statements.pop(name, None)
                for trap in self._traps:
                    if trap.mark.encode() in text:
                        talk.statements[name] = trap
            elif kind == BIND:
                _, name, _ = body.split(b"\0", 2)
                talk.watching = talk.statements.get(name)
            elif kind == QUERY:
                marked = (trap for trap in self._traps if trap.mark.encode() in body)
                talk.watching = next(marked, None)

    async def _whole_reply(self, talk: Conversation, trap: Trap, chunk: bytes) -> bytes:
        """Gather a reply until it is complete; nothing, if it is to be lost."""
        whole, unread, has_rows = bytearray(chunk), bytearray(chunk), False
        while chunk:
            for kind, _ in _messages(unread):
                has_rows |= kind == DATA_ROW
                if kind == READY_FOR_QUERY:
                    talk.watching = None
                    is_caught = not isinstance(trap, Loss) and trap.catches(has_rows=has_rows)
                    return await trap.treat(bytes(whole)) if is_caught else bytes(whole)
            chunk = await self._receive(talk.server)
            whole += chunk
            unread += chunk
        return b""


async def _send(side: tuple[StreamReader, StreamWriter], chunk: bytes) -> None:
    side[1].write(chunk)
    await side[1].drain()


def _messages(buffer: bytearray) -> list[tuple[bytes, bytes]]:
    """Take the complete messages off the front of a buffer."""
    messages = []
    while len(buffer) >= HEADER_BYTES:
        end = 1 + int.from_bytes(buffer[1:HEADER_BYTES])
        if len(buffer) < end:
            break
        messages.append((bytes(buffer[:1]), bytes(buffer[HEADER_BYTES:end])))
        del buffer[:end]
    return messages


@asynccontextmanager
async def open_proxy(dsn: str) -> AsyncIterator[Proxy]:
    """A proxy to the database of `dsn`, which must name a Unix socket."""
    address = urlsplit(dsn)
    options = parse_qs(address.query)
    socket_path = f"{options['host'][0]}/.s.PGSQL.{options['port'][0]}"
    async with anyio.create_task_group() as tasks:
        proxy = Proxy(socket_path, address.path.lstrip("/"), tasks)
        async with await asyncio.start_server(proxy.accept, "127.0.0.1", 0) as server:
            proxy.port = server.sockets[0].getsockname()[1]
            yield proxy
            tasks.cancel_scope.cancel()
