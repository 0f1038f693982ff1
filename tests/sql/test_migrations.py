"""The schema arrives whole, once, whoever else is migrating and whatever dies meanwhile."""

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from uuid import UUID

import anyio
import asyncpg
import pytest

from chronos_runtime.errors import SchemaOutdated, SchemaTooNew, StoreUnavailable
from chronos_runtime.store import migrations
from chronos_runtime.store.migrations import Connection, check_version, migrate, schema_version
from chronos_runtime.store.sql import Migration, query
from chronos_runtime.store.sql import migrations as known_migrations
from tests.eventually import eventually

NEWEST = len(known_migrations())


@pytest.fixture
async def empty(empty_dsn: str, anyio_backend: object) -> AsyncIterator[Connection]:
    connection = await asyncpg.connect(empty_dsn)
    try:
        yield connection
    finally:
        await connection.close()


@contextmanager
def one_more_migration(monkeypatch: pytest.MonkeyPatch, sql: str) -> Iterator[Migration]:
    added = Migration(number=NEWEST + 1, name="added_by_a_test", sql=sql)
    with monkeypatch.context() as patch:
        patch.setattr(migrations, "migrations", lambda: (*known_migrations(), added))
        yield added


async def catalog(connection: Connection) -> list[asyncpg.Record]:
    """Everything that exists in the schema, as far as a migration could have changed it."""
    return await connection.fetch(
        """
        select pg_class.oid, relname, relkind, relnatts, xmin::text
          from pg_class where relnamespace = to_regnamespace('chronos') order by pg_class.oid
        """
    )


async def is_waiting(observer: Connection, waiting: Connection) -> bool:
    """Whether a session stands before a lock."""
    return await observer.fetchval(  # type: ignore[no-any-return]
        "select exists (select from pg_locks where pid = $1 and not granted)",
        waiting.get_server_pid(),
    )


async def is_gone(observer: Connection, pid: int) -> bool:
    """Whether a session has ended on the server, too."""
    return await observer.fetchval(  # type: ignore[no-any-return]
        "select not exists (select from pg_stat_activity where pid = $1)", pid
    )


async def test_an_empty_database_is_brought_to_the_newest_version(
    empty: Connection,
) -> None:
    assert await schema_version(empty) == 0
    assert await migrate(empty) == list(known_migrations())
    assert await schema_version(empty) == NEWEST
    await check_version(empty)


async def test_migrating_again_changes_nothing(
    connection: Connection,
) -> None:
    before = await catalog(connection)
    assert await migrate(connection) == []
    assert await catalog(connection) == before


async def test_ten_at_once_apply_each_migration_exactly_once(
    empty_dsn: str, empty: Connection
) -> None:
    applied: list[Migration] = []

    async def migrate_alone() -> None:
        connection = await asyncpg.connect(empty_dsn)
        try:
            applied.extend(await migrate(connection))
        finally:
            await connection.close()

    async with anyio.create_task_group() as group:
        for _ in range(10):
            group.start_soon(migrate_alone)

    assert sorted(applied, key=lambda migration: migration.number) == list(known_migrations())
    assert await empty.fetchval("select count(*) from chronos.migrations") == NEWEST


async def test_a_dry_run_names_what_is_missing_and_touches_nothing(
    empty: Connection,
) -> None:
    assert await migrate(empty, dry_run=True) == list(known_migrations())
    assert await empty.fetchval("select to_regnamespace('chronos')") is None


async def test_a_newer_schema_is_refused_and_left_as_it_is(
    connection: Connection,
) -> None:
    await connection.execute(
        "insert into chronos.migrations (number, name) values ($1, 'from_the_future')", NEWEST + 1
    )
    before = await catalog(connection)
    for attempt in (
        migrate(connection),
        migrate(connection, dry_run=True),
        check_version(connection),
    ):
        with pytest.raises(SchemaTooNew, match=f"version {NEWEST + 1} .* up to {NEWEST}.*upgrade"):
            await attempt
    assert await catalog(connection) == before
    assert await schema_version(connection) == NEWEST + 1


async def test_a_schema_that_became_newer_during_the_wait_is_refused_too(
    empty_dsn: str, empty: Connection
) -> None:
    """A newer program may be the one that holds the lock."""
    newer = await asyncpg.connect(empty_dsn)
    try:
        async with anyio.create_task_group() as group:

            async def wait_then_refuse() -> None:
                with pytest.raises(SchemaTooNew):
                    await migrate(empty)

            async with newer.transaction():
                await newer.execute(f"select pg_advisory_xact_lock({migrations._ADVISORY_LOCK})")
                group.start_soon(wait_then_refuse)
                await eventually(lambda: is_waiting(newer, empty))
                await newer.execute(migrations._BOOTSTRAP)
                await newer.execute(
                    "insert into chronos.migrations values ($1, 'newer')", NEWEST + 1
                )
    finally:
        await newer.close()
    assert await schema_version(empty) == NEWEST + 1


async def test_an_old_schema_is_told_apart_and_the_fix_is_named(
    empty: Connection,
) -> None:
    with pytest.raises(SchemaOutdated, match=f"version 0 .* version {NEWEST}.*migrate"):
        await check_version(empty)


async def test_a_lock_held_too_long_gives_a_clear_error_and_changes_nothing(
    empty_dsn: str, empty: Connection
) -> None:
    blocker = await asyncpg.connect(empty_dsn)
    try:
        await blocker.execute(f"select pg_advisory_lock({migrations._ADVISORY_LOCK})")
        with pytest.raises(
            StoreUnavailable, match=r"0001_\w+ waited longer than 0.05 s for a lock"
        ):
            await migrate(empty, lock_timeout_s=0.05)
        assert await schema_version(empty) == 0
        assert await empty.fetchval("show lock_timeout") == "0"
    finally:
        await blocker.close()
    assert await migrate(empty) == list(known_migrations())


async def test_a_table_held_by_a_long_transaction_gives_the_same_error(
    dsn: str,
    connection: Connection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reader = await asyncpg.connect(dsn)
    try:
        async with reader.transaction():
            await reader.execute("select from chronos.jobs")
            with (
                one_more_migration(monkeypatch, "alter table chronos.jobs add column extra text"),
                pytest.raises(StoreUnavailable, match="added_by_a_test waited longer"),
            ):
                await migrate(connection, lock_timeout_s=0.05)
    finally:
        await reader.close()
    assert await schema_version(connection) == NEWEST


async def test_a_migration_that_fails_half_way_leaves_nothing(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = await catalog(connection)
    with (
        one_more_migration(monkeypatch, "create table chronos.half (); select 1 / 0"),
        pytest.raises(asyncpg.DivisionByZeroError),
    ):
        await migrate(connection)
    assert await catalog(connection) == before
    assert await schema_version(connection) == NEWEST


async def test_a_process_killed_half_way_leaves_nothing_and_the_next_one_succeeds(
    dsn: str,
    connection: Connection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = await catalog(connection)
    victim = await asyncpg.connect(dsn)
    victim_pid = victim.get_server_pid()
    blocker = await asyncpg.connect(dsn)
    try:
        await blocker.execute("select pg_advisory_lock(7)")
        waits = "create table chronos.half (); select pg_advisory_xact_lock(7)"
        with one_more_migration(monkeypatch, waits) as added:
            async with anyio.create_task_group() as group:

                async def die() -> None:
                    with pytest.raises(StoreUnavailable, match="connection was lost"):
                        await migrate(victim)

                group.start_soon(die)
                await eventually(lambda: is_waiting(connection, victim))
                victim.terminate()

            await blocker.close()
            await eventually(lambda: is_gone(connection, victim_pid))
            assert await catalog(connection) == before
            assert await migrate(connection) == [added]
    finally:
        victim.terminate()
        blocker.terminate()


async def test_a_database_with_jobs_in_it_gets_schedules_without_being_rewritten(
    empty: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(migrations, "migrations", lambda: known_migrations()[:1])
        await migrate(empty)
    await empty.execute("insert into chronos.jobs (id, kind) values (gen_random_uuid(), 'greet')")
    where = "select pg_relation_filenode('chronos.jobs')"
    before = await empty.fetchval(where)
    assert [one.number for one in await migrate(empty)] == [
        one.number for one in known_migrations()[1:]
    ]
    assert await empty.fetchval(where) == before
    [row] = await empty.fetch("select schedule_id, occurrence from chronos.all_jobs")
    assert tuple(row) == (None, None)


async def test_what_runs_while_claims_get_rows_of_their_own_is_finished_or_reaped_as_ever(
    empty: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(migrations, "migrations", lambda: known_migrations()[:6])
        await migrate(empty)
    ids, tokens = [UUID(int=number) for number in range(1, 6)], [UUID(int=8), UUID(int=9)]
    await empty.execute(
        """
        insert into chronos.jobs (id, kind, state, attempt, lease_token, lease_until)
        select id, 'greet', 'running', 1, token, now() + make_interval(secs => lease_s)
        from unnest($1::uuid[], $2::uuid[], $3::integer[]) as given (id, token, lease_s)
        """,
        ids[:4],
        [tokens[0], tokens[0], tokens[1], tokens[1]],
        [60, 60, -60, 60],
    )
    await empty.execute("insert into chronos.jobs (id, kind) values ($1, 'greet')", ids[4])
    await migrate(empty)
    reaped = await empty.fetch(query("reap_jobs"), None, None, UUID(int=0), 100)
    assert [row["id"] for row in reaped] == ids[2:3]
    ended = ([0.1, 0.1], None, None, None, False)
    [row] = await empty.fetch(query("finish_jobs"), ids[:2], tokens[:1], [1], *ended)
    assert row["moved"] is None
    rows = await empty.fetch("select id, state::text as state from chronos.all_jobs order by id")
    assert [row["state"] for row in rows] == ["succeeded"] * 2 + ["ready", "running", "ready"]
    with pytest.raises(asyncpg.CheckViolationError):  # As a worker of the version before claims.
        await empty.execute(
            "update chronos.jobs set state = 'running', lease_token = $1, lease_until = now()",
            tokens[0],
        )


async def test_no_column_of_a_live_job_asks_analyze_for_more_than_a_small_sample(
    connection: Connection,
) -> None:
    rows = await connection.fetch(
        """
        select attname, attstattarget from pg_attribute
        where attrelid = 'chronos.jobs'::regclass and attnum > 0 and not attisdropped
        """
    )
    wanted = {row["attname"]: row["attstattarget"] for row in rows}
    assert wanted == dict.fromkeys(wanted, 10), "0009_statistics.sql says why"
    assert wanted
