"""The tables refuse what must not be, and the history takes whatever ends."""

from datetime import UTC, date, datetime, timedelta
from uuid import UUID

import anyio
import asyncpg
import pytest

from chronos_runtime.ids import new_job_id
from chronos_runtime.store.migrations import Connection
from chronos_runtime.store.sql import query
from tests.eventually import eventually

TOKEN = UUID(int=7)
DAY = timedelta(days=1)


async def insert_job(connection: Connection, **columns: str) -> None:
    """Insert a job whose columns have these SQL expressions for values."""
    columns = {"id": "gen_random_uuid()", "kind": "'greet'"} | columns
    await connection.execute(
        f"insert into chronos.jobs ({', '.join(columns)}) values ({', '.join(columns.values())})"
    )


async def insert_ended(connection: Connection, finished_at: datetime, **columns: str) -> UUID:
    """Insert a job that ended at that instant; its id."""
    id = new_job_id()
    values = {
        "run_at": "now()",
        "enqueued_at": "now()",
        "state": "'succeeded'",
        "attempt": "1",
        "max_attempts": "5",
        "priority": "5",
        "topic": "'default'",
        "kind": "'greet'",
        "payload": "'null'",
    } | columns
    await connection.execute(
        f"insert into chronos.job_history (id, finished_at, {', '.join(values)})"
        f" values ($1, $2, {', '.join(values.values())})",
        id,
        finished_at,
    )
    return id


async def partition_of(connection: Connection, id: UUID) -> str:
    """Where a row of the history stands."""
    name = await connection.fetchval(
        "select tableoid::regclass::text from chronos.job_history where id = $1", id
    )
    return str(name).removeprefix("chronos.")


LEASED = {"lease_token": f"'{TOKEN}'", "lease_until": "now()"}


@pytest.mark.parametrize(
    ("constraint", "columns"),
    [
        ("jobs_state_waits", {"state": "'succeeded'"}),
        ("jobs_state_waits", {"state": "'dead'"}),
        ("jobs_state_waits", {"state": "'cancelled'"}),
        ("jobs_state_waits", {"state": "'failed'"}),
        ("jobs_state_waits", {"state": "'running'"}),
        ("jobs_supervisor_fits", {"supervisor": "repeat('x', 181)"}),
        ("jobs_lineage_is_whole", {"retry_of": f"'{TOKEN}'"}),
        (
            "jobs_lineage_is_whole",
            {"retry_of": f"'{TOKEN}'", "lineage_id": f"'{TOKEN}'", "lineage_no": "2"},
        ),
        (
            "jobs_lineage_is_whole",
            {
                "retry_of": f"'{TOKEN}'",
                "lineage_id": f"'{TOKEN}'",
                "lineage_no": "1",
                "supervisor": "''",
            },
        ),
        ("jobs_lease_is_whole", {"lease_token": f"'{TOKEN}'"}),
        ("jobs_lease_is_whole", {"lease_until": "now()"}),
        ("jobs_lease_is_whole", {"state": "'scheduled'", **LEASED}),
        ("jobs_priority_in_range", {"priority": "10"}),
        ("jobs_priority_in_range", {"priority": "-1"}),
        ("jobs_attempt_in_range", {"attempt": "-1"}),
        ("jobs_attempt_in_range", {"attempt": "1000001"}),
        ("jobs_attempt_in_range", {"max_attempts": "0"}),
        ("jobs_timeout_is_positive", {"timeout_s": "0"}),
        ("jobs_timeout_is_positive", {"timeout_s": "-1"}),
        ("jobs_timeout_is_positive", {"timeout_s": "'infinity'"}),
        ("jobs_timeout_is_positive", {"timeout_s": "'nan'"}),
        ("jobs_run_at_is_finite", {"run_at": "'infinity'"}),
        ("jobs_run_at_is_finite", {"run_at": "'-infinity'"}),
        ("jobs_run_at_is_finite", {"run_at": "'10000-01-01'"}),
        ("jobs_run_at_is_finite", {"run_at": "'0044-03-15 BC'"}),
        ("jobs_run_at_is_finite", {"run_at": "'1999-12-31'"}),
        ("jobs_names_fit", {"topic": "''"}),
        ("jobs_names_fit", {"topic": "'*'"}),
        ("jobs_names_fit", {"topic": "repeat('t', 201)"}),
        ("jobs_names_fit", {"kind": "''"}),
        ("jobs_names_fit", {"kind": "repeat('é', 101)"}),
        ("jobs_names_fit", {"unique_key": "''"}),
        ("jobs_names_fit", {"unique_key": "repeat('u', 1001)"}),
        ("jobs_errors_is_array", {"errors": "'{}'"}),
        ("jobs_errors_is_array", {"errors": "'null'"}),
    ],
    ids=str,
)
async def test_an_impossible_job_cannot_be_stored(
    connection: Connection, constraint: str, columns: dict[str, str]
) -> None:
    with pytest.raises(asyncpg.CheckViolationError) as refusal:
        await insert_job(connection, **columns)
    assert refusal.value.constraint_name == constraint


@pytest.mark.parametrize(
    "columns",
    [
        {"state": "'ready'", **LEASED},
        {"state": "'scheduled'", "run_at": "'9999-01-01 00:00:00+00'"},
        {"run_at": "'2000-01-01 00:00:00+00'", "priority": "0"},
        {"priority": "9", "timeout_s": "0.001", "errors": "'[]'", "unique_key": "'k'"},
        {"topic": "repeat('t', 200)", "kind": "'**'", "unique_key": "repeat('u', 1000)"},
    ],
    ids=str,
)
async def test_a_job_at_the_edge_of_what_is_possible_is_stored(
    connection: Connection, columns: dict[str, str]
) -> None:
    await insert_job(connection, **columns)


@pytest.mark.parametrize(
    "column", ["id", "seq", "run_at", "enqueued_at", "state", "attempt", "topic", "kind", "payload"]
)
async def test_what_every_job_has_cannot_be_missing(connection: Connection, column: str) -> None:
    with pytest.raises(asyncpg.NotNullViolationError):
        await insert_job(connection, **{column: "null"})


async def test_a_running_job_cannot_lose_its_lease_by_an_update(connection: Connection) -> None:
    await insert_job(connection, **LEASED)
    for change in ("lease_token = null", "lease_until = null", "state = 'scheduled'"):
        with pytest.raises(asyncpg.CheckViolationError):
            await connection.execute(f"update chronos.jobs set {change}")


async def test_two_live_jobs_cannot_share_a_unique_key(connection: Connection) -> None:
    await insert_job(connection, unique_key="'k'")
    with pytest.raises(asyncpg.UniqueViolationError):
        await insert_job(connection, unique_key="'k'")
    await insert_job(connection)
    await insert_job(connection)


@pytest.mark.parametrize("state", ["scheduled", "ready", "running"])
async def test_the_history_takes_only_what_has_ended(connection: Connection, state: str) -> None:
    with pytest.raises(asyncpg.CheckViolationError):
        await insert_ended(connection, datetime.now(UTC), state=f"'{state}'")


async def test_a_job_that_ends_on_a_day_nobody_made_is_kept(connection: Connection) -> None:
    id = await insert_ended(connection, datetime(2031, 5, 6, tzinfo=UTC))
    assert await partition_of(connection, id) == "job_history_default"


async def test_a_job_stands_in_the_partition_of_its_utc_day(connection: Connection) -> None:
    await connection.execute("set time zone 'Pacific/Kiritimati'")  # 14 hours ahead of UTC.
    day = date(2031, 5, 6)
    assert await connection.fetchval("select chronos.make_history_partition($1)", day)
    start = datetime(2031, 5, 6, tzinfo=UTC)
    second = timedelta(seconds=1)
    places = [
        await partition_of(connection, await insert_ended(connection, instant))
        for instant in (start - second, start, start + DAY - second, start + DAY)
    ]
    ours, default = "job_history_20310506", "job_history_default"
    assert places == [default, ours, ours, default]


async def test_a_partition_is_made_once(connection: Connection) -> None:
    make = "select chronos.make_history_partition('2031-05-06')"
    assert [await connection.fetchval(make) for _ in range(2)] == [True, False]


async def test_a_day_with_jobs_in_the_default_partition_gets_none_and_nothing_breaks(
    connection: Connection,
) -> None:
    id = await insert_ended(connection, datetime(2031, 5, 6, 12, tzinfo=UTC))
    assert not await connection.fetchval("select chronos.make_history_partition('2031-05-06')")
    assert await connection.fetchval("select chronos.make_history_partition('2031-05-07')")
    assert await partition_of(connection, id) == "job_history_default"


async def test_many_may_make_the_same_partitions_at_once(dsn: str, connection: Connection) -> None:
    await connection.fetch("select chronos.drop_history_partitions('9999-01-01')")
    made: list[int] = []

    async def make() -> None:
        connection = await asyncpg.connect(dsn)
        try:
            made.append(await connection.fetchval(query("make_partitions"), 3))
        finally:
            await connection.close()

    async with anyio.create_task_group() as tasks:
        for _ in range(8):
            tasks.start_soon(make)
    assert sum(made) in {4, 5}, "five where midnight passed"


async def test_a_partition_can_be_made_while_a_finish_is_under_way(
    dsn: str, connection: Connection
) -> None:
    await connection.fetchval("select chronos.make_history_partition('2031-05-06')")
    finishing = await asyncpg.connect(dsn)
    try:
        async with finishing.transaction():
            await insert_ended(finishing, datetime(2031, 5, 6, tzinfo=UTC))
            # Would raise, not wait, if it needed a lock that the insert stands in the way of.
            await connection.execute("set lock_timeout = '2s'")
            assert await connection.fetchval("select chronos.make_history_partition('2031-05-07')")
    finally:
        await finishing.close()


async def test_retention_drops_the_days_that_ended_and_no_others(connection: Connection) -> None:
    for day in (5, 6, 7):
        await connection.fetchval("select chronos.make_history_partition($1)", date(2001, 5, day))
    kept = await insert_ended(connection, datetime(2001, 5, 6, 23, tzinfo=UTC))
    gone = await insert_ended(connection, datetime(2001, 5, 5, 23, tzinfo=UTC))
    drop = "select * from chronos.drop_history_partitions($1)"
    rows = await connection.fetch(drop, datetime(2001, 5, 6, tzinfo=UTC) - timedelta(seconds=1))
    assert rows == []
    rows = await connection.fetch(drop, datetime(2001, 5, 6, tzinfo=UTC))
    assert [row[0] for row in rows] == ["job_history_20010505"]
    assert await partition_of(connection, kept) == "job_history_20010506"
    assert await partition_of(connection, gone) == "None"


async def test_retention_never_drops_the_default_partition_or_a_table_of_the_user(
    connection: Connection,
) -> None:
    await connection.execute("create table chronos.job_history_20200101 (mine int)")
    await connection.fetch("select chronos.drop_history_partitions('2100-01-01')")
    for table in ("job_history_20200101", "job_history_default"):
        assert await connection.fetchval("select to_regclass($1)", f"chronos.{table}")


async def test_old_jobs_in_the_default_partition_are_pruned_a_batch_at_a_time(
    connection: Connection,
) -> None:
    now = datetime.now(UTC)
    for _ in range(3):
        await insert_ended(connection, now - 10 * DAY)
    kept = await insert_ended(connection, now - DAY)
    prune = query("prune_default_history")
    week_s = 7 * DAY.total_seconds()
    assert [await connection.fetchval(prune, week_s, 2) for _ in range(3)] == [2, 1, 0]
    assert await partition_of(connection, kept) == "job_history_default"


async def test_one_view_shows_live_and_ended_jobs(connection: Connection) -> None:
    await insert_job(connection)
    await insert_job(connection, cancel_requested="true", **LEASED)
    await insert_ended(connection, datetime.now(UTC), result="'1'", run_s="0.5")
    rows = await connection.fetch(
        "select state::text, lease_token, cancel_requested, finished_at is not null as ended,"
        " result, run_s from chronos.all_jobs order by state"
    )
    assert [tuple(row) for row in rows] == [
        ("ready", None, False, False, None, None),
        ("running", TOKEN, True, False, None, None),
        ("succeeded", None, False, True, "1", 0.5),
    ]


async def test_a_heartbeat_leaves_every_index_alone(connection: Connection) -> None:
    await insert_job(connection, id=f"'{TOKEN}'", attempt="1", **LEASED)
    await connection.fetch(query("extend_leases"), [TOKEN], [TOKEN], [1], 30.0)
    await connection.execute("select pg_stat_force_next_flush()")

    async def hot_updates() -> int:
        return int(
            await connection.fetchval(
                "select n_tup_hot_upd from pg_stat_all_tables"
                " where relid = 'chronos.jobs'::regclass"
            )
        )

    assert await eventually(hot_updates) == 1


async def test_the_error_history_keeps_the_newest_ten_stamped_by_the_database(
    connection: Connection,
) -> None:
    pushed = "chronos.push_error({}, '{{\"n\": {}}}')"
    errors = "null"
    for number in range(12):
        errors = pushed.format(errors, number)
    assert await connection.fetchval(f"select jsonb_array_length({errors})") == 10
    assert await connection.fetchval(f"select ({errors}) -> 0 ->> 'n'") == "2"
    assert await connection.fetchval(f"select (({errors}) -> -1 ->> 'at')::timestamptz = now()")
    assert await connection.fetchval("select chronos.push_error('[1]', null)") == "[1]"
