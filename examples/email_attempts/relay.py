"""A mail relay with moods: what it replies depends on whom a mail is for.

ada@…       takes it
busy.ada@…  is busy the first time ("451")
grey.ada@…  is busy twice
full.ada@…  is busy for ever
gone.ada@…  knows nobody of that name ("550 5.1.1")
spam.ada@…  wants none of our mail ("554 5.7.1")
lost.ada@…  takes it, and reports a bounce later
"""

import asyncio
from collections import Counter
from contextlib import closing
from email import message_from_bytes

from aiosmtpd.smtp import SMTP, Envelope, Session

BUSY = "451 4.3.2 try again later"
GONE = "550 5.1.1 no such mailbox"
BLOCKED = "554 5.7.1 your mail is not wanted"
TAKEN = "250 2.0.0 taken"
BUSY_TIMES = {"busy": 1, "grey": 2, "full": 1_000_000}


class Relay:
    """Takes mails on loopback, or does not."""

    def __init__(self) -> None:
        self.port = 0
        self.taken: Counter[str] = Counter()
        """How often it took a mail, by Message-ID."""
        self.bounces: list[str] = []
        """The Message-IDs of what will come back."""
        self._asked: Counter[str] = Counter()

    async def run(self, up: asyncio.Event) -> None:
        """Serve until cancelled."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: SMTP(self, hostname="relay"), "127.0.0.1", 0)
        with closing(server):
            self.port = server.sockets[0].getsockname()[1]
            up.set()
            await loop.create_future()

    async def handle_RCPT(  # noqa: N802
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        """Say whether a mail for this address is welcome."""
        mood = address.partition(".")[0]
        self._asked[address] += 1
        if self._asked[address] <= BUSY_TIMES.get(mood, 0):
            return BUSY
        if mood in ("gone", "spam"):
            return GONE if mood == "gone" else BLOCKED
        envelope.rcpt_tos.append(address)
        return "250 2.1.5 welcome"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802
        """Take a mail."""
        assert isinstance(envelope.content, bytes)
        message_id = str(message_from_bytes(envelope.content)["message-id"])
        self.taken[message_id] += 1
        if envelope.rcpt_tos[0].startswith("lost."):
            self.bounces.append(message_id)
        return TAKEN
