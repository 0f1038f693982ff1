"""Tasks that send, a mail server and an SMS provider that remember them, and the judge of both."""

import asyncio
import itertools
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from email import message_from_bytes
from typing import Any, cast
from uuid import UUID

import anyio
import msgspec
from aiosmtpd.smtp import SMTP, Envelope, Session
from anyio.abc import ByteStream

from chronos_runtime.client import Client
from chronos_runtime.store.migrations import Connection
from tests.crash.checker import DEADLINE_S, LOOK_S, Checker
from tests.crash.fleet import PATIENT, Fleet, WorkerProcess
from tests.crash.held import AT_THE_GATE, GATE, HOLD
from tests.eventually import eventually
from tests.processors.mail_server import MailServer
from tests.processors.post import POST, SUPERVISED, SUPERVISORS, Facts, read_facts, task_payload
from tests.processors.receiver import Received, Receiver, Speak, answer

KINDS = ("chronos.email", "chronos.sms")
ADDRESSED, HANDED_OVER, ACCEPTED = "addressed", "handed over", "accepted"


class Mails(MailServer):
    """Takes mails, but not for customers whose name begins with `refused`."""

    def __init__(self) -> None:
        super().__init__()
        self.holds_when = ""
        self.held = 0
        self.is_busy = False
        self.pace_s = 0.0
        """How long the reply takes to a mail that was taken."""
        self.refusals: Counter[str] = Counter()

    async def handle_RCPT(  # noqa: N802
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        await self._hold(ADDRESSED)
        if self.is_busy:
            return "451 4.3.2 later"
        if address.startswith("refused"):
            self.refusals[address] += 1
            return "550 5.1.1 no such user"
        return await super().handle_RCPT(server, session, envelope, address, options)

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802
        await self._hold(HANDED_OVER)
        reply = await super().handle_DATA(server, session, envelope)
        await self._hold(ACCEPTED)
        await asyncio.sleep(self.pace_s)
        return reply

    async def _hold(self, when: str) -> None:
        if self.holds_when == when:
            self.held += 1
            await asyncio.get_running_loop().create_future()


class Texts(Receiver):
    """Takes text messages, but not for numbers that begin with +499."""

    def __init__(self) -> None:
        super().__init__()
        self.holds_when = ""
        self.held = 0
        self.is_busy = False
        self.pace_s = 0.0
        self.accepted: list[tuple[str, str]] = []
        """Number and idempotency key."""
        self.refusals: Counter[str] = Counter()

    def _answer(self, got: Received) -> bytes | Speak:
        number = msgspec.json.decode(got.body)["to"]
        if self.holds_when in (ADDRESSED, HANDED_OVER):
            return self._hang
        if self.is_busy:
            return answer(500)
        if number.startswith("+499"):
            self.refusals[number] += 1
            return answer(422)
        self.accepted.append((number, got.headers["idempotency-key"]))
        return self._hang if self.holds_when == ACCEPTED else self._take

    async def _take(self, stream: ByteStream) -> None:
        await anyio.sleep(self.pace_s)
        await stream.send(answer(201))

    async def _hang(self, stream: ByteStream) -> None:
        self.held += 1
        await anyio.sleep_forever()


@dataclass
class Order:
    """A task that was given, and what must become of it."""

    id: UUID
    kind: str
    customer: str
    is_supervised: bool
    is_refused: bool

    @property
    def end(self) -> str:
        """The state it must end in."""
        if not self.is_refused:
            return "succeeded"
        return "failed" if self.is_supervised else "dead"


BUSY_WORDS = {"chronos.email": "deferred", "chronos.sms": "server_error"}


@dataclass
class PostOffice:
    """Gives orders, starts those who carry them out, and looks at what was done."""

    client: Client
    checker: Checker
    fleet: Fleet
    mails: Mails
    texts: Texts

    def __post_init__(self) -> None:
        self.orders: list[Order] = []
        self._numbers = itertools.count(1_000_000)

    async def open(self) -> None:
        await self.checker.queue.execute(POST)

    async def order(
        self, *, with_refused: bool = True, max_attempts: int = 100, **more: object
    ) -> None:
        """A task of each sort: both kinds, both modes, and such as the provider refuses."""
        refused = (False, True) if with_refused else (False,)
        for kind, is_supervised, is_refused in itertools.product(KINDS, (False, True), refused):
            number = next(self._numbers)
            if kind == "chronos.email":
                customer = f"{'refused' if is_refused else 'ada'}-{number}@example.org"
            else:
                customer = f"{'+499' if is_refused else '+491'}{number}"
            job = await self.client.enqueue(
                kind,
                task_payload(kind, customer, **more),
                max_attempts=max_attempts,
                **(SUPERVISED if is_supervised else {}),
            )
            self.orders.append(Order(job.id, kind, customer, is_supervised, is_refused))

    def start(
        self,
        *,
        hold: str = "",
        gate: str = "",
        lease: dict[str, float] | None = None,
        dsn: str | None = None,
    ) -> WorkerProcess:
        """A worker that sends; held at a gate, if one is named. Nobody takes over from it."""
        port = self.texts.port
        return self.fleet.start(
            dsn=dsn,
            environment={HOLD: hold, GATE: gate},
            email={
                "host": "localhost",
                "port": self.mails.port,
                "tls": "none",
                "sender": "shop@example.org",
            },
            sms={
                "url": f"http://127.0.0.1:{port}/",
                "allow": [f"127.0.0.1:{port}"],
                "sender": "Shop",
            },
            supervisors=SUPERVISORS,
            executor={"concurrency": 10},
            heartbeater=PATIENT if lease is None else lease,
        )

    async def all_are_at_the_gate(self, worker: WorkerProcess) -> None:
        """Wait until each task stands there."""

        def held() -> bool:
            said = [line["job"] for line in worker.log() if line["message"] == AT_THE_GATE]
            return sorted(said) == sorted(str(order.id) for order in self.orders)

        await eventually(held, DEADLINE_S)

    async def all_are_held_by_the_providers(self) -> None:
        await eventually(lambda: self.mails.held + self.texts.held == len(self.orders), DEADLINE_S)

    async def all_wait_for_a_lock(self) -> None:
        """Wait until each task has a statement that waits."""

        async def waiting() -> bool:
            count: int = await self.checker.queue.fetchval(
                "select count(distinct pid) from pg_locks where not granted"
            )
            return count == len(self.orders)

        await eventually(waiting, DEADLINE_S, poll_s=LOOK_S)

    async def facts(self) -> Facts:
        async with self.checker.queue.acquire() as connection:
            return await read_facts(cast("Connection", connection))

    def sends(self) -> Mapping[str, list[str]]:
        """Every message that a provider took, as its key, or refused; by customer."""
        sends: dict[str, list[str]] = {}
        for mail in list(self.mails.mails):
            key = str(message_from_bytes(mail.content)["Message-ID"])
            sends.setdefault(mail.recipients[0], []).append(key)
        for number, key in self.texts.accepted:
            sends.setdefault(number, []).append(key)
        for refusals in (self.mails.refusals, self.texts.refusals):
            for customer, count in refusals.items():
                sends[customer] = ["refused"] * count
        return sends

    async def judge(self, *, sends: int, runs: int, is_sure: bool = True) -> Counter[int]:
        """Hold everything that was ordered to what must be there once all is drained.

        Unless it is sure, `sends` and `runs` are the most there may be. How many messages were
        sent how often.
        """
        await self.checker.wait_drained()
        facts = await self.facts()
        rows = await self.checker.queue.fetch(
            "select id, state::text, attempt from chronos.job_history where kind = any ($1)", KINDS
        )
        assert Counter(row["id"] for row in rows) == Counter(order.id for order in self.orders)
        history: dict[UUID, Any] = {row["id"]: row for row in rows}
        sent, counted = self.sends(), Counter[int]()
        for order in self.orders:
            row, keys = history[order.id], sent[order.customer]
            assert row["state"] == order.end, order
            assert row["attempt"] == runs or (not is_sure and 1 <= row["attempt"] <= runs), order
            assert len(keys) == sends or (not is_sure and 1 <= len(keys) <= row["attempt"]), order
            assert len(set(keys)) == 1, "a second send has the key of the first"
            assert order.is_refused or str(order.id) in keys[0]
            what = ("failed", "rejected") if order.is_refused else ("sent", "succeeded")
            attempt = 1 if order.is_supervised else row["attempt"]
            assert facts.of(order.id) == [(attempt, *what)], order
            told = ["give_up"] if order.is_supervised and order.is_refused else []
            assert facts.decided.get(order.id, []) == told, order
            counted[len(keys)] += 1
        assert facts.total == len(self.orders), "a fact of nobody"
        return counted
