"""A mail server on loopback, on a thread and a loop of its own: aiosmtpd, told what to reply."""

import asyncio
import ssl
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

USER, PASSWORD = "shop", "canary-hunter2"
HANG, DROP, KEEP_AND_DROP, KEEP_AND_HANG = "hang", "drop", "keep and drop", "keep and hang"


class Mail(NamedTuple):
    """A mail, as it came."""

    sender: str
    recipients: list[str]
    content: bytes


class MailServer:
    """Replies with what is in `replies`, by command, one after the other; the last goes on.

    A reply that begins with the word of a client's trouble (`hang`, `drop`) makes that trouble.
    """

    def __init__(self, **options: Any) -> None:
        self.mails: list[Mail] = []
        self.replies: dict[str, list[str]] = defaultdict(lambda: ["250 2.0.0 fine"])
        self.refused: dict[str, str] = {}
        """What is replied to RCPT, by address."""
        self.connections = 0
        self.commands: list[str] = []
        self.logins = 0
        self.port = 0
        self._tls: ssl.SSLContext | None = options.pop("tls", None)
        # Under TLS from the first byte the library does not know that there is any.
        self._options = {"auth_require_tls": False} | options
        self._loop: asyncio.AbstractEventLoop

    @contextmanager
    def serve(self) -> Iterator["MailServer"]:
        """Serve beside the block; once more on the same port, if it served before."""
        self._loop = asyncio.new_event_loop()
        up = threading.Event()
        thread = threading.Thread(target=self._run, args=(up,), name="mail server")
        thread.start()
        try:
            assert up.wait(10)
            yield self
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            thread.join(10)
            assert not thread.is_alive()

    def _run(self, up: threading.Event) -> None:
        loop = self._loop
        asyncio.set_event_loop(loop)
        server = loop.run_until_complete(
            loop.create_server(self._session, "127.0.0.1", self.port, ssl=self._tls)
        )
        self.port = server.sockets[0].getsockname()[1]
        loop.call_soon(up.set)
        loop.run_forever()
        server.close()
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        loop.run_until_complete(server.wait_closed())
        loop.run_until_complete(asyncio.sleep(0))  # For transports to hear that they are closed.
        loop.close()

    def _session(self) -> SMTP:
        self.connections += 1
        return SMTP(
            self,
            hostname="mail.example.org",
            loop=self._loop,
            authenticator=self._authenticate,
            **self._options,
        )

    def _authenticate(
        self, server: SMTP, session: Session, envelope: Envelope, mechanism: str, data: Any
    ) -> AuthResult:
        self.logins += 1
        assert isinstance(data, LoginPassword)
        is_right = (data.login, data.password) == (USER.encode(), PASSWORD.encode())
        # A server that repeats a password is a bad one, and there are some.
        reply = f"535 5.7.8 no: {data.password.decode()}"
        return AuthResult(success=is_right, handled=False, message=None if is_right else reply)

    async def handle_MAIL(  # noqa: N802
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        reply = await self._reply("MAIL", server)
        envelope.mail_from = address
        return reply

    async def handle_RCPT(  # noqa: N802
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        reply = self.refused.get(address) or await self._reply("RCPT", server)
        if reply.startswith("250"):
            envelope.rcpt_tos.append(address)
        return reply

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802
        assert isinstance(envelope.content, bytes)
        mail = Mail(str(envelope.mail_from), list(envelope.rcpt_tos), envelope.content)
        if self.replies["DATA"][0].startswith(("250", "keep")):
            self.mails.append(mail)
        return await self._reply("DATA", server)

    async def _reply(self, command: str, server: SMTP) -> str:
        replies = self.replies[command]
        reply = replies.pop(0) if len(replies) > 1 else replies[0]
        if reply in (DROP, KEEP_AND_DROP):
            assert isinstance(server.transport, asyncio.WriteTransport)
            server.transport.abort()
            return "250 never heard"
        if reply in (HANG, KEEP_AND_HANG):
            await asyncio.get_running_loop().create_future()
        return reply
