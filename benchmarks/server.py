"""A Postgres of the benchmark's own: durable defaults, an empty migrated database per round.

Its log is that of a server which has been up for a while. A new one makes each segment of its log
when it comes to it, and until the 16 MB are written every commit waits: seen under half load, 90 ms
every three or four seconds. After a checkpoint segments are used again.
"""

import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import anyio
import asyncpg
import msgspec
import psutil

from chronos_runtime.config import DatabaseConfig
from chronos_runtime.embedded import EmbeddedPostgres
from chronos_runtime.ids import new_job_ids
from chronos_runtime.store import NewJob
from chronos_runtime.store.insert import insert_jobs
from chronos_runtime.store.migrations import migrate
from chronos_runtime.store.postgres import PostgresStore

_CHUNK = 50_000
_LOG_MB = 2_000  # As a steady load keeps it. With half, p99 at half load was 46 ms instead of 9.
_STATISTICS_LAG_S = 1.5  # A backend tells its counters at most once a second.


class Usage(msgspec.Struct, frozen=True):
    """What the server counts: WAL written, transactions ended."""

    wal_bytes: int
    commits: int
    rollbacks: int


class Server(msgspec.Struct, frozen=True):
    """A running Postgres."""

    dsn: str
    pid: int

    def dsn_of(self, database: str) -> str:
        """The DSN of one of its databases."""
        return self.dsn.replace("/postgres?", f"/{database}?")

    def cpu_s(self) -> float:
        """CPU seconds of all its processes so far, those that have gone included."""
        postmaster = psutil.Process(self.pid)
        spent = [postmaster.cpu_times()]
        for child in postmaster.children():
            try:
                spent.append(child.cpu_times())
            except psutil.NoSuchProcess:
                continue
        gone_s = float(spent[0].children_user + spent[0].children_system)
        return gone_s + sum(float(one.user + one.system) for one in spent)


@contextmanager
def embedded_server() -> Iterator[Server]:
    """A server that lives as long as the benchmark; fsync stays on."""
    with tempfile.TemporaryDirectory(prefix="chronos-bench-") as folder:
        Path(folder).chmod(0o755)  # The server runs as another user when we are root.
        # Kept after a checkpoint, to be used again.
        settings = {"min_wal_size": f"{_LOG_MB}MB"}
        with EmbeddedPostgres(Path(folder) / "data", settings=settings) as server:
            yield Server(server.dsn, server.pid)


@asynccontextmanager
async def setting(server: Server, name: str, value: str) -> AsyncIterator[None]:
    """Another value of a server's setting, for as long as the block takes."""
    connection = await asyncpg.connect(server.dsn)
    try:
        await connection.execute(f"alter system set {name} = '{value}'")
        await connection.execute("select pg_reload_conf()")
        yield
    finally:
        await connection.execute(f"alter system reset {name}")
        await connection.execute("select pg_reload_conf()")
        await connection.close()


async def fill_log(server: Server) -> None:
    """Write as much of the log as is kept, so that from here on no segment has to be made.

    In one go: after a checkpoint half-way its first half would be used again for the second.
    """
    connection = await asyncpg.connect(server.dsn)
    try:
        async with setting(server, "max_wal_size", f"{2 * _LOG_MB}MB"):
            for _ in range(_LOG_MB):
                await connection.execute(
                    "select pg_logical_emit_message(false, 'chronos', repeat('x', 1000000))"
                )
            await connection.execute("checkpoint")
    finally:
        await connection.close()


@asynccontextmanager
async def empty_database(server: Server, name: str) -> AsyncIterator[str]:
    """The DSN of a new database; dropped afterwards."""
    connection = await asyncpg.connect(server.dsn)
    await connection.execute(f"drop database if exists {name} with (force)")
    await connection.execute(f"create database {name}")
    try:
        yield server.dsn_of(name)
    finally:
        await connection.execute(f"drop database if exists {name} with (force)")
        await connection.close()


@asynccontextmanager
async def fresh_database(server: Server, *, name: str = "bench") -> AsyncIterator[DatabaseConfig]:
    """A new database of ours: migrated, with today's history partition."""
    async with empty_database(server, name) as dsn:
        connection = await asyncpg.connect(dsn)
        await migrate(connection)
        await connection.close()
        config = DatabaseConfig(dsn=dsn)
        store = PostgresStore(config)
        await store.make_partitions(1)
        await store.close()
        yield config


async def load(config: DatabaseConfig, jobs: int, kind: str) -> None:
    """Enqueue `jobs` plain jobs, and leave the table as a quiet minute would."""
    connection = await asyncpg.connect(config.dsn)
    for start in range(0, jobs, _CHUNK):
        count = min(_CHUNK, jobs - start)
        await insert_jobs(
            connection,
            [
                NewJob(
                    id=id,
                    kind=kind,
                    payload='{"n": 1}',
                    topic="default",
                    priority=5,
                    max_attempts=5,
                )
                for id in new_job_ids(count)
            ],
        )
    # Autovacuum would come within the minute and share our two cores with the measurement.
    await connection.execute("vacuum (analyze) chronos.jobs")
    await connection.execute("checkpoint")
    await connection.close()


async def usage(config: DatabaseConfig) -> Usage:
    """The server's counters, once every backend has told them."""
    await anyio.sleep(_STATISTICS_LAG_S)
    connection = await asyncpg.connect(config.dsn)
    try:
        row = await connection.fetchrow(
            "select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint as wal_bytes,"
            " xact_commit, xact_rollback from pg_stat_database where datname = current_database()"
        )
        assert row is not None
        return Usage(row["wal_bytes"], row["xact_commit"], row["xact_rollback"])
    finally:
        await connection.close()
