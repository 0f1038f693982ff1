"""A worker waits for its database, drains when asked, and says what is wrong with its start."""

import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from urllib.parse import parse_qs, urlsplit
from uuid import UUID

import anyio
import pytest
from anyio.abc import ByteStream, SocketStream

from chronos_runtime.client import Client
from chronos_runtime.store import JobRecord
from chronos_runtime.store.migrations import Connection
from tests.cli.program import QUIET_S, Cli, is_held, running
from tests.eventually import eventually

pytestmark = pytest.mark.crash

PORT = ("--metrics-port", "0")


@pytest.fixture
async def client(dsn: str, anyio_backend: object) -> AsyncIterator[Client]:
    async with Client.connect(dsn) as client:
        yield client


def free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@asynccontextmanager
async def proxy(port: int, dsn: str) -> AsyncIterator[None]:
    """A server on `port` that is the one of `dsn`."""
    options = parse_qs(urlsplit(dsn).query)
    path = f"{options['host'][0]}/.s.PGSQL.{options['port'][0]}"

    async def serve(downstream: SocketStream) -> None:
        async with (
            downstream,
            await anyio.connect_unix(path) as upstream,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(pump, downstream, upstream)
            await pump(upstream, downstream)
            tasks.cancel_scope.cancel()

    async def pump(source: ByteStream, sink: ByteStream) -> None:
        try:
            async for part in source:
                await sink.send(part)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=port)
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, serve)
        yield
        tasks.cancel_scope.cancel()


async def test_a_worker_runs_jobs_and_drains_on_sigterm(
    dsn: str, client: Client, folder: Path
) -> None:
    gate = folder / "gate"
    with running("run", "shop:app", "--dsn", dsn, *PORT, folder=folder) as program:
        job = await client.enqueue("hold", str(gate))
        await is_held(gate)
        program.signal(signal.SIGTERM)
        line = await program.says("draining 1 running jobs for up to 30 s, until ")
        assert line["message"].startswith("SIGTERM: ")
        gate.touch()
        assert await program.ends() == 0
    assert (await client.get(job.id)).state == "succeeded"


async def test_what_outlives_the_drain_goes_back_to_the_queue(
    dsn: str, client: Client, folder: Path
) -> None:
    arguments = ("run", "shop:app", "--dsn", dsn, "--drain-s", "0", *PORT)
    with running(*arguments, folder=folder) as program:
        job = await client.enqueue("hold", str(folder / "never"))
        await is_held(folder / "never")
        program.signal(signal.SIGINT)
        assert await program.ends() == 0
    found = await client.get(job.id)
    assert found.state in ("ready", "scheduled")
    assert found.errors[-1]["type"] == "Interrupted"


async def test_a_second_signal_stops_at_once(dsn: str, client: Client, folder: Path) -> None:
    with running("run", "shop:app", "--dsn", dsn, *PORT, folder=folder) as program:
        await client.enqueue("hold", str(folder / "never"))
        await is_held(folder / "never")
        program.signal(signal.SIGTERM)
        await program.says("draining")
        program.signal(signal.SIGTERM)
        assert await program.ends() == 130
        assert "second signal" in program.log


async def test_a_second_signal_is_heard_by_a_blocked_loop(
    dsn: str, client: Client, folder: Path
) -> None:
    with running("run", "shop:app", "--dsn", dsn, *PORT, folder=folder) as program:
        await client.enqueue("block", 600)
        await program.says("the event loop has been blocked")
        program.signal(signal.SIGINT)
        program.signal(signal.SIGTERM)
        assert await program.ends() == 130


async def test_a_worker_waits_for_a_database_that_comes_later(
    dsn: str, client: Client, folder: Path
) -> None:
    port = free_port()
    name = urlsplit(dsn).path
    late = f"postgresql://postgres@127.0.0.1:{port}{name}?sslmode=disable"
    job = await client.enqueue("hold", str(folder))
    with running("run", "shop:app", "--dsn", late, *PORT, folder=folder) as program:
        waiting = await program.says("the database is not there yet")
        assert late in waiting["error"]
        await eventually(lambda: len(program.said("waiting for the database")) >= 3, QUIET_S)
        async with proxy(port, dsn):
            await program.says("the database is there")

            async def is_done() -> bool:
                return (await client.get(job.id)).state == "succeeded"

            await eventually(is_done, QUIET_S)
            program.signal(signal.SIGTERM)
            assert await program.ends() == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_ends_the_waiting(folder: Path, number: signal.Signals) -> None:
    secret = f"postgresql://ada:hunter2@127.0.0.1:{free_port()}/app"
    with running("run", "shop:app", "--dsn", secret, *PORT, folder=folder) as program:
        await program.says("waiting for the database")
        program.signal(number)
        assert await program.ends() == 0
        assert "nothing was running yet" in program.log
        assert "hunter2" not in program.log


async def test_a_database_that_does_not_answer_at_all_does_not_hold_up_a_signal(
    folder: Path,
) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        dsn = f"postgresql://ada@127.0.0.1:{silent.getsockname()[1]}/app"
        with running("run", "shop:app", "--dsn", dsn, *PORT, folder=folder) as program:
            silent.settimeout(QUIET_S)
            connection, _ = await anyio.to_thread.run_sync(silent.accept)
            program.signal(signal.SIGTERM)
            assert await program.ends() == 0
            connection.close()


async def test_an_old_schema_is_refused_unless_asked_to_migrate(
    empty_dsn: str, folder: Path
) -> None:
    with running("run", "shop:app", "--dsn", empty_dsn, *PORT, folder=folder) as program:
        assert await program.ends() == 3
        assert "chronos-runtime migrate" in program.log
    arguments = ("run", "shop:app", "--dsn", empty_dsn, "--migrate", *PORT)
    with running(*arguments, folder=folder) as program:
        await program.says("applied migration 0001_jobs")
        await program.says("worker up")


async def test_without_a_dsn_it_brings_its_own_database_and_says_so(open_folder: Path) -> None:
    with running("run", "shop:app", *PORT, folder=open_folder) as program:
        line = await program.says("no DSN given: starting an embedded Postgres, for development")
        assert line["data_dir"] == str(open_folder / ".chronos/postgres")
        await program.says("worker up")
        with running("enqueue", "hold", f'"{open_folder}"', folder=_other(open_folder)) as enqueue:
            assert await enqueue.ends() == 0, enqueue.log
            assert "using the embedded Postgres in" in enqueue.log

        def is_done() -> bool:
            with running(
                "jobs", "list", "--state", "succeeded", folder=_other(open_folder)
            ) as listing:
                listing.process.wait()
                return "hold" in listing.log

        await eventually(is_done, QUIET_S)
        program.signal(signal.SIGTERM)
        assert await program.ends() == 0


def _other(folder: Path) -> Path:
    """A folder for another log, with the same database."""
    other = folder / "other"
    if not other.exists():
        other.mkdir()
        (other / ".chronos").symlink_to(folder / ".chronos")
    return other


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("shop", "write module:app"),
        ("nowhere:app", "no module 'nowhere' in "),
        ("shop:ap", "shop has no 'ap'; it has app, empty"),
        ("shop:hold", "shop:hold is of type function, not a Chronos; it has app, empty"),
        ("shop:empty", "shop:empty has no handlers"),
        ("broken:app", "importing broken failed: ZeroDivisionError: division by zero ("),
        ("needs:app", "importing needs failed: ModuleNotFoundError: No module named 'absent'"),
        ("exits:app", "importing exits failed: SystemExit: 7"),
    ],
)
def test_what_is_wrong_with_the_app_is_one_line(
    cli: Cli, folder: Path, path: str, expected: str
) -> None:
    (folder / "broken.py").write_text("x = 1\ny = x / 0\n", encoding="utf-8")
    (folder / "needs.py").write_text("import absent\n", encoding="utf-8")
    (folder / "exits.py").write_text("raise SystemExit(7)\n", encoding="utf-8")
    ended = cli("run", path, "--dsn", "postgresql://127.0.0.1:1/app")
    assert ended.code == 2
    assert ended.err.startswith("error: ")
    assert expected in ended.err
    assert ended.err.count("\n") == 1


@pytest.mark.parametrize("processes", ["1", "2"])
async def test_a_secret_that_is_not_there_is_said_before_anything_starts(
    folder: Path, processes: str
) -> None:
    (folder / "chronos.toml").write_text(
        "[wake]\nsecrets = { billing = 'env:NOT_SET' }", encoding="utf-8"
    )
    away = ("--dsn", "postgresql://127.0.0.1:1/app")
    with running("run", "shop:app", "--processes", processes, *away, folder=folder) as program:
        assert await program.ends() == 2
        trouble = "error: wake.secrets: 'billing' is to be read from env:NOT_SET"
        assert program.log.startswith(trouble)
        assert program.log.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["shop:app", "--module", "shop:app"],
        ["shop:app", "--concurrency", "0"],
        ["shop:app", "--processes", "0"],
        ["shop:app", "--log-format", "xml"],
        ["shop:app", "--log-level", "loud"],
    ],
)
def test_flags_that_make_no_sense_are_bad_usage(
    cli: Cli, folder: Path, arguments: list[str]
) -> None:
    assert cli("run", *arguments).code == 2


async def test_a_port_that_is_taken_is_said_at_once(dsn: str, folder: Path) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = str(taken.getsockname()[1])
        arguments = ("run", "shop:app", "--dsn", dsn, "--metrics-port", port)
        with running(*arguments, folder=folder) as program:
            assert await program.ends() == 2
            assert f"error: exporter.port: cannot listen on 127.0.0.1:{port}" in program.log


async def test_a_worker_without_an_app_serves_what_is_written_in_sql(
    dsn: str, client: Client, connection: Connection, folder: Path
) -> None:
    await connection.execute(
        "create schema shop; create function shop.charge(j jsonb) returns jsonb language sql as"
        """ $$ select jsonb_build_object('status', 'succeeded', 'payload', j) $$;"""
        " insert into chronos.allowed_functions values ('shop', 'charge')"
    )
    payload = {"function": "shop.charge", "arguments": {"cents": 7}}
    job = await client.enqueue("chronos.db_function", payload)
    with running("run", "-", "--dsn", dsn, *PORT, folder=folder) as program:
        await program.says("no app: serving the built-in kinds alone")
        record = await eventually(lambda: succeeded(client, job.id), 20)
        program.signal(signal.SIGTERM)
        assert await program.ends() == 0
    assert record.result == {"cents": 7}


async def succeeded(client: Client, id: UUID) -> JobRecord | None:
    record = await client.get(id)
    return record if record.state == "succeeded" else None
