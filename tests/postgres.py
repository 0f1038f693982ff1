"""The Postgres the tests run on: one server, one migrated template, one copy of it per test.

`CHRONOS_TEST_POSTGRES` chooses the version: 18 (the default) and 16 come with the wheel, 15 is
looked for on the machine. The workers of pytest-xdist share the server: starting a second one
costs more than two cores gain from it.
"""

import itertools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio.from_thread
import asyncpg
import pytest

from chronos_runtime.embedded import EmbeddedPostgres
from chronos_runtime.store.migrations import Connection, migrate

TEMPLATE = "chronos_template"

# The operating system outlives the tests, so nothing needs to reach the disk. Commits stay
# synchronous: tests crash the server, and what it acknowledged must be there afterwards.
SETTINGS = {"fsync": "off", "full_page_writes": "off", "max_wal_size": "256MB"}

# Copying a template is creating 300 small files: 15 ms here in memory, 200 to 300 ms on disk.
_MEMORY = Path("/dev/shm")
_MEMORY_FREE_MIN_BYTES = 2 * 1024**3

_KNOWN_PLACES = (
    "/usr/lib/postgresql/{}/bin",
    "/usr/pgsql-{}/bin",
    "/opt/homebrew/opt/postgresql@{}/bin",
    "/usr/local/opt/postgresql@{}/bin",
)


def wanted_version() -> int:
    """The major version of `CHRONOS_TEST_POSTGRES`."""
    wanted = os.environ.get("CHRONOS_TEST_POSTGRES") or "18"
    if wanted not in {"15", "16", "18"}:
        raise pytest.UsageError(f"CHRONOS_TEST_POSTGRES must be 15, 16 or 18, not {wanted!r}")
    return int(wanted)


def make_folder() -> Path:
    """A new folder for a server, in memory where there is enough of it; the caller deletes it."""
    in_memory = (
        os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free >= _MEMORY_FREE_MIN_BYTES
    )
    folder = Path(tempfile.mkdtemp(prefix="chronos-tests-", dir=_MEMORY if in_memory else None))
    folder.chmod(0o711)  # When root runs the tests, another user runs the server.
    return folder


def make_server(data_dir: Path, *, listen_port: int | None = None) -> EmbeddedPostgres:
    """A server of the wanted version, not started yet; a test that crashes one needs its own."""
    version = wanted_version()
    return EmbeddedPostgres(
        data_dir,
        version=version,
        settings=SETTINGS,
        listen_port=listen_port,
        bin_path=_installed_bin_path(version) if version == 15 else None,
    )


class Databases:
    """Makes and drops the databases of tests, whatever event loop those run on."""

    def __init__(self, server: EmbeddedPostgres, worker_id: str) -> None:
        self.server = server
        self._names = (f"test_{worker_id}_{number}" for number in itertools.count())

    @contextmanager
    def open(self) -> Iterator[None]:
        """Connect, and migrate the template if no other worker did."""
        with anyio.from_thread.start_blocking_portal("asyncio") as portal:
            self._portal = portal
            self._admin = portal.call(_connect, self.server.dsn)
            try:
                portal.call(self._ensure_template)
                yield
            finally:
                portal.call(self._admin.close)

    @contextmanager
    def fresh(self, *, template: str = TEMPLATE) -> Iterator[str]:
        """The DSN of a new database, gone afterwards."""
        name = next(self._names)
        # By copying files: faster here than the default, through the log.
        self._execute(f"create database {name} template {template} strategy file_copy")
        try:
            yield self.server.dsn_of(name)
        finally:
            self._execute(f"drop database {name} with (force)")

    def _execute(self, statement: str) -> None:
        self._portal.call(self._admin.execute, statement)

    async def _ensure_template(self) -> None:
        await self._admin.execute("select pg_advisory_lock(1)")
        try:
            if await self._admin.fetchval("select 1 from pg_database where datname = $1", TEMPLATE):
                return
            # Named last, so that a migration that fails leaves no half-made template behind.
            await self._admin.execute("drop database if exists template_draft")
            await self._admin.execute("create database template_draft")
            connection = await _connect(self.server.dsn_of("template_draft"))
            try:
                await migrate(connection)
            finally:
                await connection.close()
            await self._admin.execute(f"alter database template_draft rename to {TEMPLATE}")
        finally:
            await self._admin.execute("select pg_advisory_unlock(1)")


async def _connect(dsn: str) -> Connection:
    return await asyncpg.connect(dsn)


def _installed_bin_path(version: int) -> Path:
    places = [Path(place.format(version)) for place in _KNOWN_PLACES]
    if pg_config := shutil.which("pg_config"):
        found = subprocess.run([pg_config, "--bindir"], capture_output=True, text=True, check=True)
        places.append(Path(found.stdout.strip()))
    for place in places:
        if (place / "initdb").exists() and _major(place) == version:
            return place
    raise pytest.UsageError(
        f"CHRONOS_TEST_POSTGRES={version}: no PostgreSQL {version} found; install it "
        f"(apt-get install postgresql-{version}) or choose 16 or 18"
    )


def _major(bin_path: Path) -> int:
    version = subprocess.run(
        [bin_path / "postgres", "--version"], capture_output=True, text=True, check=True
    )
    return int(version.stdout.split()[2].split(".")[0])
