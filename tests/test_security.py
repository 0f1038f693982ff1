"""Secrets stay secret, text stays text, and data never becomes code."""

import ast
import logging
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import pytest
from rich.pretty import pretty_repr

import chronos_runtime
from chronos_runtime import Chronos, Client, Config, Job, MemoryStore, NewJob, UnknownKind
from chronos_runtime.config import DatabaseConfig
from chronos_runtime.errors import ChronosError, ConfigError, StoreError
from chronos_runtime.failure import failure_record
from chronos_runtime.ids import Worker, new_job_id
from chronos_runtime.job import Finish
from chronos_runtime.store import Wanted
from chronos_runtime.store.postgres import PostgresStore

CANARY = "s3cr3t-canary"

# Well written, but nothing answers there.
UNREACHABLE = [
    f"postgresql://ada:{CANARY}@127.0.0.1:1/app",
    f"postgresql://ada:{CANARY}@db.invalid/app",
    f"postgresql:///app?host=/nowhere&user=ada&password={CANARY}",
    f"postgresql://ada:{CANARY}@127.0.0.1:1,127.0.0.1:2/app",
]

# As people write them whose password has special characters.
UNREADABLE = [
    f"postgresql://ada:x/{CANARY}@127.0.0.1:1/app",
    f"postgresql://ada:{CANARY}/x@127.0.0.1:1/app",
    f"postgresql://ada:{CANARY}#x@127.0.0.1:1/app",
    f"postgresql://ada:{CANARY}?x@127.0.0.1:1/app",
    f"postgresql://ada:[{CANARY}@127.0.0.1:1/app",
    f"postgresql://ada:x@{CANARY}@127.0.0.1:1/app",
    f"postgresql://ada:x:{CANARY}@127.0.0.1:1/app",
    f"postgresql://127.0.0.1:{CANARY}/app",
    f"postgresql://ada:%zz{CANARY}@127.0.0.1:1/app",
    f"postgres//ada:{CANARY}@127.0.0.1/app",
    f"mysql://ada:{CANARY}@127.0.0.1/app",
    f"user=ada password={CANARY} host=127.0.0.1",
    f"postgresql://ada:x@127.0.0.1:1/app?sslmode={CANARY}",
    f"{CANARY}://127.0.0.1/app",
    CANARY,
]

INJECTIONS = [
    "'; drop table chronos.jobs; --",
    '"; drop table chronos.jobs; --',
    "$1",
    "$$; select pg_sleep(60); $$",
    "{a,b}",
    "\\'; --",
    "%s %(x)s {0} {x}",
    "NULL",
    "\\N",
    "\\.",
]


async def failures_of(dsn: str) -> list[BaseException]:
    """What whoever uses this DSN gets to see."""
    store = PostgresStore(DatabaseConfig(dsn=dsn, connect_s=5.0))
    failures: list[BaseException] = []
    async with Client(store) as client:
        for ask in (
            client.get(new_job_id()),
            client.enqueue("greet"),
            store.listen(lambda *_: None, presence=1, probe_s=1.0, probe_deadline_s=1.0),
        ):
            with pytest.raises(ChronosError) as caught:
                await ask
            failures.append(caught.value)
    return failures


def told(error: BaseException) -> str:
    """Everything a log could show of an error, its causes included."""
    return f"{error!r} {error} {''.join(traceback.format_exception(error))}"


@pytest.mark.parametrize("dsn", UNREACHABLE + UNREADABLE, ids=lambda dsn: dsn.replace(CANARY, "…"))
async def test_a_failed_connect_does_not_tell_the_password(
    dsn: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    for failure in await failures_of(dsn):
        assert CANARY not in told(failure)
    assert CANARY not in caplog.text


@asynccontextmanager
async def unfriendly_server() -> AsyncIterator[tuple[int, list[bytes]]]:
    """A server that asks for the password and then refuses it; its port and what it was sent."""
    heard: list[bytes] = []

    async def refuse(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            first = await stream.receive()
            if first[4:8] == b"\x04\xd2\x16\x2f":  # May we use TLS? No.
                await stream.send(b"N")
                await stream.receive()
            await stream.send(b"R\x00\x00\x00\x08\x00\x00\x00\x03")  # The password, please.
            heard.append(await stream.receive())
            fields = b"SFATAL\x00VFATAL\x00C28P01\x00Mpassword authentication failed\x00\x00"
            await stream.send(b"E" + (len(fields) + 4).to_bytes(4, "big") + fields)

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, refuse)
        yield listener.extra(anyio.abc.SocketAttribute.local_port), heard
        tasks.cancel_scope.cancel()


async def test_a_refused_password_is_not_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with unfriendly_server() as (port, heard):
        failures = await failures_of(f"postgresql://ada:{CANARY}@127.0.0.1:{port}/app")
    assert CANARY.encode() in b"".join(heard), "it was sent, or this test shows nothing"
    for failure in failures:
        assert type(failure) is StoreError, "asking again would not help"
        assert CANARY not in told(failure)
    assert CANARY not in caplog.text


@pytest.mark.parametrize("dsn", UNREADABLE[-6:], ids=lambda dsn: dsn.replace(CANARY, "…"))
async def test_an_address_nobody_can_read_is_refused_with_advice(dsn: str) -> None:
    for failure in await failures_of(dsn):
        assert isinstance(failure, ConfigError)
        assert str(failure).startswith("database.dsn: cannot be read; write postgresql://")


def test_what_shows_a_config_does_not_show_its_password() -> None:
    dsn = f"postgresql://ada:{CANARY}@127.0.0.1/app"
    config = Config.of({"database": {"dsn": dsn}})
    store = PostgresStore(config.database)
    for shown in (config, config.database, store, Client(store), Client.connect(dsn)):
        assert CANARY not in f"{shown!r} {shown} {pretty_repr(shown)}"
    assert "dsn='***'" in repr(config), "that there is one is no secret"
    assert "statement_s=15.0" in repr(config.database)
    assert "dsn=''" in repr(Config())


@pytest.mark.parametrize("wrong", [[CANARY], {"password": CANARY}, {CANARY: 1}], ids=type)
def test_a_refused_config_does_not_quote_the_value(wrong: object) -> None:
    with pytest.raises(ConfigError) as caught:
        Config.of({"database": {"dsn": wrong}})
    assert CANARY not in told(caught.value)


async def test_a_job_the_table_refuses_is_not_quoted(dsn: str) -> None:
    job = NewJob(new_job_id(), "greet", f'{{"card": "{CANARY}"}}', "default", 10, 5)
    async with Client.connect(dsn) as client:
        for jobs in ([job], [job] * 600):
            with pytest.raises(StoreError, match="jobs_priority_in_range") as caught:
                await client.enqueue_many(jobs)
            assert CANARY not in told(caught.value)


async def test_an_error_with_control_characters_is_kept_as_it_was_said(dsn: str) -> None:
    message = "\x1b]0;owned\x07\x1b[2J\r\nINFO all is well\x00\x7f\x9b31m\u202egnp.exe\u2028"
    record = failure_record(ValueError(message), attempt=1, worker="w")
    assert not any(ord(character) < 32 for character in record), "JSON spells them out"
    store = PostgresStore(DatabaseConfig(dsn=dsn))
    async with Client(store) as client:
        enqueued = await client.enqueue("greet")
        [job] = await store.claim_jobs(
            Worker().next_token(),
            [Wanted("default", 1, [0] * 10)],
            kinds=["greet"],
            room=1,
            lease_s=30.0,
            claimed_at=0.0,
        )
        assert await store.finish_jobs([Finish(job, "dead", 0.1, error=record)]) == [enqueued.id]
        [error] = (await client.get(enqueued.id)).errors
    assert error["message"] == message.replace("\x00", "\ufffd")


async def test_text_is_never_sql(dsn: str) -> None:
    async with Client.connect(dsn) as client:
        for text in INJECTIONS:
            options: Any = {"topic": text, "key": text}
            single = await client.enqueue(text, {text: text}, **options)
            many = [client.job(text, {text: text}, topic=text) for _ in range(500)]
            bulk = await client.enqueue_many(many)
            for id in (single.id, bulk[-1].id):
                job = await client.get(id)
                assert (job.kind, job.topic, job.payload) == (text, text, {text: text})
            assert not (await client.enqueue(text, **options)).is_new
            assert len((await client.list(topic=text, kind=text, limit=1_000)).jobs) == 501
            await client.pause(text)
            await client.cancel(single.id)
        assert {gate.topic for gate in await client.gates()} == set(INJECTIONS)


@pytest.mark.parametrize(
    "payload",
    [
        {"py/object": "os.system", "py/reduce": [{"py/function": "os.system"}, ["id"]]},
        {"__class__": "subprocess.Popen", "__init__": {"args": ["id"]}},
        {"exc_type": "system", "exc_module": "os", "exc_message": "id"},
        "!!python/object/apply:os.system ['id']",
        "gASVHQAAAAAAAACMBXBvc2l4lIwGc3lzdGVtlJOUjAJpZJSFlFKULg==",
        {"$ref": "file:///etc/passwd"},
        "${jndi:ldap://127.0.0.1/x}",
    ],
    ids=lambda payload: ascii(payload)[:30],
)
async def test_a_payload_that_describes_an_object_stays_a_description(payload: object) -> None:
    app = Chronos()

    @app.handler("greet")
    async def greet(job: Job, payload: Any) -> None: ...

    client = Client(MemoryStore(), app)
    job = client.job("greet", payload)
    assert app.handlers["greet"].decode(job.payload) == payload


@pytest.mark.parametrize(
    "kind", ["os.system", "builtins.eval", "os:system", "__import__", "greet()"]
)
def test_a_kind_is_looked_up_and_never_imported(kind: str) -> None:
    with pytest.raises(UnknownKind):
        Chronos().find(kind)


def test_nothing_in_the_package_can_turn_data_into_code() -> None:
    forbidden = {"dill", "eval", "exec", "jsonpickle", "marshal", "pickle", "shelve", "yaml"}
    package = Path(chronos_runtime.__file__).parent
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            used: set[str] = set()
            if isinstance(node, ast.Import):
                used = {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                used = {(node.module or "").partition(".")[0]}
            elif isinstance(node, ast.Name):
                used = {node.id}
            assert not used & forbidden, f"{path.name} uses {used & forbidden}"
