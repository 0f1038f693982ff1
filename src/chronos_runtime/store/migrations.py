"""Bring the schema to the version this program needs, whoever else is trying to.

Each migration is one transaction that first takes one advisory lock, then looks at the version
again, then runs the file and records it. So ten processes that start at once apply each file
exactly once, a process killed half-way leaves nothing behind, and, since the lock belongs to the
transaction and not to the session, all of it works through PgBouncer in transaction mode.
"""

from math import ceil
from typing import TypeAlias

import asyncpg

from chronos_runtime.errors import (
    ConfigError,
    InputError,
    SchemaOutdated,
    SchemaTooNew,
    StoreUnavailable,
)
from chronos_runtime.store.sql import Migration, migrations, query

SERVER_VERSION_MIN = 150000
"""`merge`, `nulls not distinct` and cheap template copies came with 15; the oldest we test."""

LOCK_TIMEOUT_S = 10.0
"""Long enough for another process to migrate, short enough that queries queued behind a blocked
`alter table` do not pile up into an outage."""

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

# "chronos" in ASCII: a number nobody else on a shared server is likely to lock.
_ADVISORY_LOCK = 0x6368726F6E6F73

_BOOTSTRAP = """
create schema if not exists chronos;
create table if not exists chronos.migrations (
    number     integer     primary key,
    name       text        not null,
    applied_at timestamptz not null default now()
);
comment on table chronos.migrations is
    'One row per migration applied; the highest number is the schema version.';
"""

# Read from the catalog's own tables. `to_regclass` answers from a cache that is not refreshed by
# waiting for an advisory lock: the loser of a race would still see nothing and migrate again.
_IS_INSTALLED = """
select exists (
    select from pg_catalog.pg_class
     where relname = 'migrations'
       and relnamespace = (select oid from pg_catalog.pg_namespace where nspname = 'chronos')
)
"""

_DAYS_AHEAD = 3  # As the janitor's default.

_VERSION = "select coalesce(max(number), 0) from chronos.migrations"


async def migrate(
    connection: Connection,
    *,
    dry_run: bool = False,
    lock_timeout_s: float = LOCK_TIMEOUT_S,
) -> list[Migration]:
    """Apply what is missing and return it; with `dry_run`, only return what would be applied.

    Raises SchemaTooNew, before touching anything, when the database is ahead of this program,
    and StoreUnavailable when a lock could not be had in time or the connection was lost; the
    migrations applied until then stay.
    """
    if lock_timeout_s <= 0:
        raise InputError(f"lock_timeout_s must be above 0, not {lock_timeout_s}")
    assert not connection.is_in_transaction(), "each migration needs a transaction of its own"

    await _require_server_version(connection)
    version = await schema_version(connection)
    _refuse_newer(version)
    pending = list(migrations()[version:])
    if dry_run:
        return pending
    applied = [m for m in pending if await _apply(connection, m, lock_timeout_s=lock_timeout_s)]
    # Before any job can end: outcomes on their way into the default partition fail when the
    # partition of their day is attached under them. From now on the janitor works ahead.
    await connection.fetch(query("make_partitions"), _DAYS_AHEAD)
    return applied


async def schema_version(connection: Connection) -> int:
    """The number of the newest migration applied, 0 where Chronos was never installed."""
    # Two statements, one transaction: PgBouncer may give every transaction another server
    # connection, and asyncpg prepares and executes in separate round trips.
    async with connection.transaction():
        if not await connection.fetchval(_IS_INSTALLED):
            return 0
        version = await connection.fetchval(_VERSION)
    assert isinstance(version, int)
    return version


async def check_version(connection: Connection) -> None:
    """Return when the schema is exactly the one this program was written for, raise otherwise."""
    await _require_server_version(connection)
    version = await schema_version(connection)
    _refuse_newer(version)
    if version < _newest():
        raise SchemaOutdated(
            f"the schema is at version {version} and this program needs version {_newest()}: "
            "run `chronos-runtime migrate`"
        )


async def _apply(connection: Connection, migration: Migration, *, lock_timeout_s: float) -> bool:
    """Apply one migration unless another process was faster; whether it was us."""
    try:
        async with connection.transaction(isolation="read_committed"):
            # A role's statement_timeout is meant for its queries; here it would only make a
            # long index build fail for ever.
            await connection.execute("set local statement_timeout = 0")
            await connection.execute(f"set local lock_timeout = {ceil(lock_timeout_s * 1000)}")
            # Before anything else: even `create schema if not exists` fails when two race.
            await connection.execute(f"select pg_advisory_xact_lock({_ADVISORY_LOCK})")
            version = await schema_version(connection)
            _refuse_newer(version)
            if version >= migration.number:
                return False
            await connection.execute(_BOOTSTRAP)
            await connection.execute(migration.sql)
            await connection.execute(
                "insert into chronos.migrations (number, name) values ($1, $2)",
                migration.number,
                migration.name,
            )
    except asyncpg.LockNotAvailableError as error:
        raise StoreUnavailable(
            f"migration {migration.number:04}_{migration.name} waited longer than "
            f"{lock_timeout_s:g} s for a lock: another process is migrating, or a long "
            "transaction holds a table of Chronos (see pg_stat_activity). It changed nothing; "
            "try again, or wait longer with a higher lock timeout"
        ) from error
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
        if not connection.is_closed():
            raise
        raise StoreUnavailable(
            f"the connection was lost during migration {migration.number:04}_{migration.name}: "
            "it changed nothing, or all of it; run it again"
        ) from error
    return True


def _newest() -> int:
    return len(migrations())


def _refuse_newer(version: int) -> None:
    if version > _newest():
        raise SchemaTooNew(
            f"the schema is at version {version} and this program knows versions up to "
            f"{_newest()}: upgrade chronos-runtime. Nothing was changed"
        )


async def _require_server_version(connection: Connection) -> None:
    async with connection.transaction():
        number = int(await connection.fetchval("show server_version_num"))
    if number < SERVER_VERSION_MIN:
        raise ConfigError(
            f"dsn: this server is PostgreSQL {number // 10000}, Chronos needs "
            f"{SERVER_VERSION_MIN // 10000} or newer"
        )
