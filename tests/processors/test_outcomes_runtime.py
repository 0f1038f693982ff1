"""However a provider takes a message, each attempt leaves one fact, and the counters say the same.

`CHRONOS_OUTAGE_SECONDS=60` keeps the providers away for a real minute, with the backoff that we
ship; the default is long enough for some attempts to fail.
"""

import functools
import os
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack
from email import message_from_bytes
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import pytest
import trustme
from anyio.abc import ByteStream

from chronos_runtime import Chronos, Client, JobRecord, Runtime
from chronos_runtime.backoff import Fixed
from chronos_runtime.processors import message_rules
from chronos_runtime.processors.rules import processor_rules
from chronos_runtime.store.migrations import Connection
from tests.eventually import eventually
from tests.processors.mail_server import DROP, HANG, KEEP_AND_DROP, MailServer
from tests.processors.post import (
    POST,
    SUPERVISED,
    SUPERVISORS,
    PostFact,
    read_facts,
    task_payload,
)
from tests.processors.receiver import Receiver, Speak, answer
from tests.test_runtime import make_config, working

EMAIL, SMS = "chronos.email", "chronos.sms"
CUSTOMERS = {EMAIL: "ada@example.org", SMS: "+4915112345678"}
DEADLINE_S = 20.0
OUTAGE_S = float(os.environ.get("CHRONOS_OUTAGE_SECONDS") or 1)
IS_REAL = OUTAGE_S >= 60
PAUSE_S = OUTAGE_S / 5
TASKS = 5  # Of each kind and mode, while the providers are away.
SENT = ("sent", "succeeded")

both_kinds = pytest.mark.parametrize("kind", [EMAIL, SMS])
both_modes = pytest.mark.parametrize("mode", [{}, SUPERVISED], ids=["queue", "supervised"])


@pytest.fixture(autouse=True)
def backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages that come back soon."""
    if not IS_REAL:
        rules = functools.partial(processor_rules, backoff=Fixed(PAUSE_S))
        monkeypatch.setattr(message_rules, "processor_rules", rules)


@pytest.fixture
async def post(connection: Connection) -> Connection:
    """A connection to a database with a post office in it."""
    await connection.execute(POST)
    return connection


@pytest.fixture
async def client(dsn: str) -> AsyncIterator[Client]:
    async with Client.connect(dsn) as client:
        yield client


@pytest.fixture
def mails() -> Iterator[MailServer]:
    with MailServer().serve() as server:
        yield server


class Provider(NamedTuple):
    """Both of them; a test uses the one of its kind."""

    mails: MailServer
    texts: Receiver

    def sections(self, **changes: dict[str, Any]) -> dict[str, Any]:
        """The settings to reach them."""
        port = self.texts.port
        email = {"host": "localhost", "port": self.mails.port, "tls": "none", "timeout_s": 1.0}
        sms = {"url": f"http://127.0.0.1:{port}/", "allow": [f"127.0.0.1:{port}"], "timeout_s": 1.0}
        return {
            "email": email | {"sender": "shop@example.org"} | changes.get("email", {}),
            "sms": sms | {"sender": "Shop"} | changes.get("sms", {}),
            "supervisors": SUPERVISORS,
        }

    def keys(self, kind: str) -> list[str]:
        """What each message bore that came to them, to be told from others by."""
        if kind == EMAIL:
            contents = [message_from_bytes(mail.content) for mail in self.mails.mails]
            return [content["Message-ID"].strip("<>").split("@")[0] for content in contents]
        return [got.headers["idempotency-key"] for got in self.texts.received]


@pytest.fixture
def provider(mails: MailServer, receiver: Receiver) -> Provider:
    return Provider(mails, receiver)


class Story(NamedTuple):
    """What became of one order: its tasks in line, and the facts of all of them."""

    tasks: Sequence[JobRecord]
    facts: list[PostFact]
    counted: Counter[str]

    @property
    def ends(self) -> list[str]:
        return [task.state for task in self.tasks]


class Desk(NamedTuple):
    """Where orders are given."""

    dsn: str
    client: Client
    post: Connection

    async def drained(self) -> bool:
        return not await self.post.fetchval("select count(*) from chronos.jobs")

    async def tell(self, kind: str, mode: dict[str, Any], runtime: Runtime, **more: Any) -> Story:
        """Give one order and wait until nothing is left to do."""
        async with working(runtime):
            payload = task_payload(kind, CUSTOMERS[kind])
            job = await self.client.enqueue(kind, payload, **mode, **more)
            await eventually(self.drained, DEADLINE_S)
        tasks = await self.client.lineage(job.id)
        facts = await read_facts(self.post)
        story = Story(
            tasks, [fact for task in tasks for fact in facts.of(task.id)], counted(runtime, kind)
        )
        assert facts.total == len(story.facts), "a fact of nobody"
        assert story.counted == Counter(fact.outcome for fact in story.facts)
        failed = [task.id for task in tasks if task.state == "failed"]
        assert {id: len(seen) for id, seen in facts.decided.items()} == dict.fromkeys(failed, 1)
        return story

    def runtime(self, sections: dict[str, Any]) -> Runtime:
        return Runtime(Chronos(), make_config(self.dsn, **sections))


def counted(runtime: Runtime, kind: str) -> Counter[str]:
    """Runs by outcome, as the metric has them."""
    found: Counter[str] = Counter()
    for family in runtime.metrics.registry.collect():
        for one in family.samples:
            if one.name == "chronos_processor_runs_total" and one.labels["processor"] == kind:
                found[one.labels["outcome"]] += int(one.value)
    return +found


@pytest.fixture
def desk(dsn: str, client: Client, post: Connection) -> Desk:
    return Desk(dsn, client, post)


async def hang(stream: ByteStream) -> None:
    await anyio.sleep_forever()


async def drop(stream: ByteStream) -> None:
    await stream.aclose()


TROUBLES: dict[str, tuple[tuple[str, str, str], tuple[bytes | Speak, str]]] = {
    "defers": (("RCPT", "451 4.2.0 later", "deferred"), (answer(500), "server_error")),
    "throttles": (("MAIL", "421 4.7.0 slowly", "deferred"), (answer(429), "throttled")),
    "hangs": (("RCPT", HANG, "timeout"), (hang, "unconfirmed")),
    "hangs up": (("RCPT", DROP, "unreachable"), (drop, "unconfirmed")),
    "takes it and hangs up": (("DATA", KEEP_AND_DROP, "unconfirmed"), (drop, "unconfirmed")),
}


@both_kinds
@both_modes
async def test_a_message_that_is_taken_leaves_one_fact(
    desk: Desk, provider: Provider, kind: str, mode: dict[str, Any]
) -> None:
    story = await desk.tell(kind, mode, desk.runtime(provider.sections()))
    assert story.ends == ["succeeded"]
    assert story.facts == [(1, *SENT)]
    assert provider.keys(kind) == [str(story.tasks[0].id)]


@both_kinds
@both_modes
@pytest.mark.parametrize("trouble", TROUBLES)
async def test_a_trouble_that_passes_leaves_one_fact_and_the_next_attempt_another(
    desk: Desk, provider: Provider, kind: str, mode: dict[str, Any], trouble: str
) -> None:
    (command, reply, mail_word), (speak, text_word) = TROUBLES[trouble]
    provider.mails.replies[command] = [reply, "250 fine"]
    provider.texts.answers = [speak, answer(201)]
    story = await desk.tell(kind, mode, desk.runtime(provider.sections()))
    word = mail_word if kind == EMAIL else text_word
    assert story.facts == [(1, "failed", word), (2, *SENT)]
    ids = [str(task.id) for task in story.tasks]
    if mode:
        assert story.ends == ["failed", "succeeded"]
        assert [task.attempt for task in story.tasks] == [1, 1], "none was run again by the queue"
        assert story.tasks[1].retry_of == story.tasks[0].id
    else:
        assert story.ends == ["succeeded"]
        ids *= 2
    were_both_taken = kind == SMS or reply == KEEP_AND_DROP
    assert provider.keys(kind) == (ids if were_both_taken else ids[1:])


@both_kinds
@both_modes
async def test_a_message_that_is_refused_for_good_leaves_one_fact_and_is_not_sent_again(
    desk: Desk, provider: Provider, kind: str, mode: dict[str, Any]
) -> None:
    provider.mails.replies["RCPT"] = ["550 5.1.1 no such user"]
    provider.texts.answers = [answer(422)]
    story = await desk.tell(kind, mode, desk.runtime(provider.sections()))
    assert story.ends == ["failed" if mode else "dead"]
    assert story.facts == [(1, "failed", "rejected")]
    assert (await read_facts(desk.post)).decided == (
        {story.tasks[0].id: ["give_up"]} if mode else {}
    )
    assert len(provider.texts.received) == (kind == SMS)


@both_kinds
@both_modes
async def test_a_provider_slower_than_the_task_may_take_leaves_one_fact(
    desk: Desk, provider: Provider, kind: str, mode: dict[str, Any]
) -> None:
    provider.mails.replies["DATA"] = [HANG, "250 fine"]
    provider.texts.answers = [hang, answer(201)]
    patient = provider.sections(email={"timeout_s": 60.0}, sms={"timeout_s": 60.0})
    story = await desk.tell(kind, mode, desk.runtime(patient), timeout_s=1.0)
    assert story.facts == [(1, "failed", "timeout"), (2, *SENT)]


@pytest.fixture
def authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> trustme.CA:
    """One that this process trusts, for e-mails by a setting and for the rest by OpenSSL's own."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    return authority


@both_kinds
@both_modes
@pytest.mark.parametrize("is_trusted", [True, False], ids=["trusted", "untrusted"])
async def test_over_tls_it_is_the_same_and_a_bad_certificate_is_one_fact(
    desk: Desk,
    authority: trustme.CA,
    tmp_path: Path,
    *,
    kind: str,
    mode: dict[str, Any],
    is_trusted: bool,
) -> None:
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    issuer = authority if is_trusted else trustme.CA()
    issuer.issue_cert("localhost", "127.0.0.1").configure_cert(server)
    async with Receiver().serve(server if kind == SMS else None) as texts:
        with MailServer(tls=server if kind == EMAIL else None).serve() as mails:
            provider = Provider(mails, texts)
            sections = provider.sections(
                email={"tls": "tls", "ca_file": str(tmp_path / "ca.pem")},
                sms={"url": f"https://127.0.0.1:{texts.port}/"},
            )
            supervised = mode and mode | ({} if is_trusted else {"supervisor": ""})
            runtime = desk.runtime(sections)
            async with working(runtime):
                job = await desk.client.enqueue(
                    kind, task_payload(kind, CUSTOMERS[kind]), max_attempts=1, **supervised
                )
                await eventually(desk.drained, DEADLINE_S)
    record = await desk.client.get(job.id)
    [fact] = (await read_facts(desk.post)).of(job.id)
    if is_trusted:
        assert (record.state, fact) == ("succeeded", (1, *SENT))
        assert provider.keys(kind) == [str(job.id)]
    else:
        word = "tls_failed" if kind == EMAIL else "unreachable"
        assert (record.state, fact) == ("failed" if mode else "dead", (1, "failed", word))
        assert provider.keys(kind) == []
    assert counted(runtime, kind) == {fact.outcome: 1}


@pytest.mark.slow
async def test_providers_that_are_away_for_a_while_cost_facts_and_no_message(desk: Desk) -> None:
    mails, texts = MailServer(), Receiver()
    texts.answers = [answer(201)]
    with mails.serve():
        async with texts.serve():
            provider = Provider(mails, texts)
            runtime = desk.runtime(provider.sections())  # Their ports are known now.
    orders = []
    for kind in (EMAIL, SMS):
        payload = task_payload(kind, CUSTOMERS[kind], pause_s=PAUSE_S)
        for mode in ({}, SUPERVISED):
            jobs = [desk.client.job(kind, payload, max_attempts=30, **mode) for _ in range(TASKS)]
            enqueued = await desk.client.enqueue_many(jobs)
            orders += [(kind, mode, one.id) for one in enqueued]
    async with working(runtime), AsyncExitStack() as stack:
        await anyio.sleep(OUTAGE_S)  # The outage itself: nothing is waited for.
        stack.enter_context(mails.serve())
        await stack.enter_async_context(texts.serve(port=texts.port))
        await eventually(desk.drained, DEADLINE_S + 3 * OUTAGE_S)

    facts = await read_facts(desk.post)
    outcomes: dict[str, Counter[str]] = {EMAIL: Counter(), SMS: Counter()}
    sent: dict[str, list[str]] = {EMAIL: [], SMS: []}
    for kind, mode, id in orders:
        tasks = await desk.client.lineage(id)
        *failed, last = [fact for task in tasks for fact in facts.of(task.id)]
        assert failed, "it was away"
        assert {(what, outcome) for _, what, outcome in failed} == {("failed", "unreachable")}
        assert last == (len(failed) + 1, *SENT)
        assert [fact.attempt for fact in failed] == list(range(1, len(failed) + 1))
        assert len(tasks) == (len(failed) + 1 if mode else 1)
        outcomes[kind] += Counter({"unreachable": len(failed), "succeeded": 1})
        sent[kind].append(str(tasks[-1].id))
    for kind in (EMAIL, SMS):
        assert sorted(provider.keys(kind)) == sorted(sent[kind]), "each is sent once"
        assert counted(runtime, kind) == outcomes[kind]
    assert facts.total == sum(map(Counter.total, outcomes.values())) == facts.records
    failures = sum(len(seen) for seen in facts.decided.values())
    print(f"{OUTAGE_S:g} s away: {outcomes}, {failures} decisions of the supervisor")  # noqa: T201
