"""The embedded server is shared by its users, outlives Ctrl-C, and keeps what it acknowledged."""

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from chronos_runtime.embedded import EmbeddedPostgres
from chronos_runtime.embedded_programs import find_programs
from chronos_runtime.errors import ConfigError, StoreUnavailable
from tests.postgres import make_folder, make_server, wanted_version

pytestmark = pytest.mark.slow

USE_UNTIL_KILLED = """
import sys
from pathlib import Path
from tests.postgres import make_server

with make_server(Path(sys.argv[1])) as server:
    print(server.pid, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def data_dir() -> Iterator[Path]:
    folder = make_folder()
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def server(data_dir: Path) -> Iterator[EmbeddedPostgres]:
    with make_server(data_dir) as server:
        yield server


async def ask(dsn: str, question: str) -> object:
    connection = await asyncpg.connect(dsn)
    try:
        return await connection.fetchval(question)
    finally:
        await connection.close()


async def test_the_last_user_to_stop_stops_the_server(
    server: EmbeddedPostgres, data_dir: Path
) -> None:
    with make_server(data_dir) as other:
        assert other.pid == server.pid
    assert await ask(server.dsn, "select 1") == 1
    server.stop()
    with pytest.raises(StoreUnavailable, match="no embedded Postgres runs"):
        _ = server.pid


def test_a_killed_user_leaves_a_server_that_the_next_one_joins_and_stops(data_dir: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", USE_UNTIL_KILLED, str(data_dir)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as victim:
        assert victim.stdout is not None
        server_pid = int(victim.stdout.readline())
        victim.kill()

    with make_server(data_dir) as server:
        assert server.pid == server_pid
    assert not (data_dir / "cluster" / "postmaster.pid").exists()


async def test_a_crash_loses_nothing_that_was_acknowledged(server: EmbeddedPostgres) -> None:
    pid = server.pid
    connection = await asyncpg.connect(server.dsn)
    await connection.execute("create table kept as select 7 as number")
    server.restart("immediate")
    connection.terminate()
    assert server.pid != pid
    assert await ask(server.dsn, "select number from kept") == 7


def test_ctrl_c_in_the_terminal_does_not_reach_the_server(server: EmbeddedPostgres) -> None:
    assert os.getsid(server.pid) != os.getsid(0)


async def test_nothing_listens_on_tcp_and_commits_are_durable_unless_told_otherwise(
    data_dir: Path,
) -> None:
    bin_path = make_server(data_dir).bin_path
    with EmbeddedPostgres(data_dir, version=wanted_version(), bin_path=bin_path) as server:
        settings = {
            name: await ask(server.dsn, f"show {name}")
            for name in ("fsync", "full_page_writes", "synchronous_commit", "listen_addresses")
        }
    assert settings == {
        "fsync": "on",
        "full_page_writes": "on",
        "synchronous_commit": "on",
        "listen_addresses": "",
    }


async def test_a_path_too_long_for_a_socket_gets_a_short_one(data_dir: Path) -> None:
    with make_server(data_dir / ("long" * 30)) as server:
        assert await ask(server.dsn, "select 1") == 1


async def test_what_a_killed_initdb_left_is_made_anew(data_dir: Path) -> None:
    draft = data_dir / "cluster.draft"
    draft.mkdir()
    (draft / "PG_VERSION").write_text("18")
    with make_server(data_dir) as server:
        assert await ask(server.dsn, "select 1") == 1


def test_a_folder_of_another_version_is_refused(server: EmbeddedPostgres, data_dir: Path) -> None:
    other = EmbeddedPostgres(data_dir, version=18 if wanted_version() != 18 else 16)
    with pytest.raises(ConfigError, match=f"made by PostgreSQL {wanted_version()}"):
        other.start()


def test_a_missing_extra_names_the_fix(monkeypatch: pytest.MonkeyPatch, data_dir: Path) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"chronos-runtime\[embedded\].*--dsn"):
        EmbeddedPostgres(data_dir)


def test_a_version_the_wheel_does_not_hold_is_refused() -> None:
    with pytest.raises(ConfigError, match="16 or 18, not 9"):
        find_programs(9)


def test_a_server_that_cannot_start_shows_its_log(data_dir: Path) -> None:
    server = EmbeddedPostgres(
        data_dir,
        version=wanted_version(),
        bin_path=make_server(data_dir).bin_path,
        settings={"shared_buffers": "nonsense"},
    )
    with pytest.raises(StoreUnavailable, match="pg_ctl failed") as raised:
        server.start()
    assert "nonsense" in "\n".join(raised.value.__notes__)
