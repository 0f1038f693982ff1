"""`chronos.enqueue`: what SQL enqueues is what a client would have enqueued."""

from uuid import UUID

import anyio
import asyncpg
import pytest

from chronos_runtime import Client
from chronos_runtime.store.migrations import Connection
from tests.eventually import eventually

COLUMNS = (
    "kind, topic, payload::text, priority, max_attempts, timeout_s, unique_key, supervisor,"
    " state::text, attempt, run_at <= now() as is_due"
)


async def row(connection: Connection, id: UUID) -> dict[str, object]:
    found = await connection.fetchrow(f"select {COLUMNS} from chronos.jobs where id = $1", id)
    assert found is not None
    return dict(found)


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        ("greet", {"name": "ada"}),
        ("chronos.db_function", {"function": "shop.charge"}),
        ("chronos.email", {"to": "ada@example.org", "subject": "Hello", "text": "Hello."}),
        ("chronos.sms", {"to": "+4915112345678", "text": "Hello."}),
        ("chronos.wake", {"url": "https://example.org/"}),
    ],
)
async def test_its_defaults_are_those_of_a_client(
    dsn: str, connection: Connection, kind: str, payload: dict[str, str]
) -> None:
    async with Client.connect(dsn) as client:
        theirs = await row(connection, (await client.enqueue(kind, payload)).id)
    id = await connection.fetchval("select chronos.enqueue($1, $2::text::jsonb)", kind, "{}")
    ours = await row(connection, id)
    payload_of = [one.pop("payload") for one in (theirs, ours)]
    assert ours == theirs
    assert payload_of[1] == "{}"


async def test_what_is_said_is_what_stands_there(connection: Connection) -> None:
    id = await connection.fetchval(
        """
        select chronos.enqueue(
            'greet', '{"name": "ada"}', topic => 'mail', priority => 0, delay_s => 3600,
            max_attempts => 3, timeout_s => 1.5, unique_key => 'ada', supervisor => 'mail'
        )
        """
    )
    assert await row(connection, id) == {
        "kind": "greet",
        "topic": "mail",
        "payload": '{"name": "ada"}',
        "priority": 0,
        "max_attempts": 3,
        "timeout_s": 1.5,
        "unique_key": "ada",
        "supervisor": "mail",
        "state": "scheduled",
        "attempt": 0,
        "is_due": False,
    }


async def test_an_instant_goes_before_a_delay(connection: Connection) -> None:
    id = await connection.fetchval(
        "select chronos.enqueue('greet', delay_s => 5, run_at => '2099-01-01T00:00:00Z')"
    )
    year = await connection.fetchval(
        "select extract(year from run_at at time zone 'UTC') from chronos.jobs where id = $1", id
    )
    assert year == 2099


async def test_its_ids_are_of_now_and_never_the_same(connection: Connection) -> None:
    before = await connection.fetchval("select clock_timestamp()")
    rows = await connection.fetch(
        "select chronos.enqueue('greet') as id from generate_series(1, 1000)"
    )
    after = await connection.fetchval("select clock_timestamp()")
    ids = {row["id"] for row in rows}
    assert len(ids) == 1000
    for id in ids:
        assert (id.version, id.variant) == (7, "specified in RFC 4122")
        assert int(before.timestamp() * 1000) <= id.int >> 80 <= int(after.timestamp() * 1000) + 1


async def test_a_task_and_what_it_is_about_are_committed_together_or_not_at_all(
    connection: Connection,
) -> None:
    transaction = connection.transaction()
    await transaction.start()
    await connection.execute("select chronos.enqueue('greet')")
    await transaction.rollback()
    assert await connection.fetchval("select count(*) from chronos.jobs") == 0


async def test_a_key_is_of_one_live_task_whoever_comes_first(
    dsn: str, connection: Connection
) -> None:
    enqueue = "select chronos.enqueue('greet', unique_key => 'ada')"
    other = await asyncpg.connect(dsn)
    try:
        async with anyio.create_task_group() as tasks:
            second: list[UUID] = []

            async def wait_for_it() -> None:
                second.append(await other.fetchval(enqueue))

            async def is_waiting() -> bool:
                waits = "select exists (select from pg_locks where pid = $1 and not granted)"
                return bool(await connection.fetchval(waits, other.get_server_pid()))

            async with connection.transaction():
                first = await connection.fetchval(enqueue)
                tasks.start_soon(wait_for_it)
                assert await eventually(is_waiting)
    finally:
        await other.close()
    assert second == [first]
    assert await connection.fetchval(enqueue) == first
    assert await connection.fetchval("select count(*) from chronos.jobs") == 1


async def test_who_is_idle_is_told(dsn: str, connection: Connection) -> None:
    await connection.execute(
        "insert into chronos.idle_marks (topic, worker) values ('chronos', gen_random_uuid())"
    )
    heard: list[tuple[str, str]] = []
    ear = await asyncpg.connect(dsn)
    try:
        for channel in ("chronos_ready", "chronos_due"):
            await ear.add_listener(
                channel, lambda _, __, channel, topic: heard.append((channel, str(topic)))
            )
        for said in ("'greet'", "'chronos.x', delay_s => 60", "'chronos.x', delay_s => 5"):
            await connection.execute(f"select chronos.enqueue({said})")
        await connection.execute("select chronos.enqueue('chronos.x')")
        await eventually(lambda: ("chronos_ready", "chronos") in heard)
    finally:
        await ear.close()
    assert heard == [("chronos_due", "chronos"), ("chronos_ready", "chronos")]


@pytest.mark.parametrize(
    ("said", "constraint"),
    [
        ("''", "jobs_names_fit"),
        ("'greet', topic => '*'", "jobs_names_fit"),
        ("'greet', priority => 10", "jobs_priority_in_range"),
        ("'greet', max_attempts => 0", "jobs_attempt_in_range"),
        ("'greet', timeout_s => 0", "jobs_timeout_is_positive"),
        ("'greet', run_at => 'infinity'", "jobs_run_at_is_finite"),
        ("'greet', supervisor => repeat('x', 181)", "jobs_supervisor_fits"),
    ],
)
async def test_what_no_job_can_be_is_refused(
    connection: Connection, said: str, constraint: str
) -> None:
    with pytest.raises(asyncpg.CheckViolationError, match=constraint):
        await connection.execute(f"select chronos.enqueue({said})")


async def test_few_privileges_are_enough(connection: Connection) -> None:
    role = "enqueues_only"  # Of the server, not of the database: rolled back with the rest.
    transaction = connection.transaction()
    await transaction.start()
    try:
        await connection.execute(
            f"""
            create role {role};
            grant usage on schema chronos to {role};
            grant select, insert on chronos.jobs to {role};
            grant select on chronos.idle_marks to {role};
            grant usage on sequence chronos.job_seq to {role};
            set local role {role};
            """
        )
        enqueue = "select chronos.enqueue('greet', unique_key => 'ada')"
        assert await connection.fetchval(enqueue) == await connection.fetchval(enqueue)
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.execute("delete from chronos.jobs")
    finally:
        await transaction.rollback()
