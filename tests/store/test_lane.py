"""Connections with manners: no statement is cut in half, and nothing is left behind."""

import asyncio
import functools
import gc
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import anyio
import asyncpg
import pytest
from anyio.lowlevel import checkpoint

from chronos_runtime.config import DatabaseConfig
from chronos_runtime.errors import ConfigError, StoreError, StoreUnavailable
from chronos_runtime.store.connect import connect
from chronos_runtime.store.faults import breaks_connection
from chronos_runtime.store.lane import Lane, ignore_observation
from chronos_runtime.store.migrations import Connection
from chronos_runtime.store.postgres import PostgresStore
from tests.eventually import eventually
from tests.store.world import PostgresWorld, new_job

SHORT_S = 0.2  # A deadline that is meant to pass.

# The sessions of a test's own database, but for the one that asks.
SESSIONS = """
select count(*) from pg_stat_activity
where datname = current_database() and pid <> pg_backend_pid() and application_name = $1
"""
BUSY = f"{SESSIONS} and state <> 'idle'"
OURS = "chronos-runtime"

Operation = Callable[[Connection], Awaitable[Any]]
Cancel = Callable[[Lane, Operation, int], Coroutine[Any, Any, None]]


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, bool]]:
    """Not the settings of the contract's tests: asyncpg knows no other loop."""
    return ("asyncio", {"use_uvloop": True})


@asynccontextmanager
async def open_lane(
    dsn: str, *, size: int = 1, deadline_s: float = 10.0, **settings: Any
) -> AsyncIterator[Lane]:
    config = DatabaseConfig(dsn=dsn, **settings)
    lane = Lane(
        functools.partial(connect, config),
        size=size,
        deadline_s=deadline_s,
        observe=ignore_observation,
    )
    try:
        yield lane
    finally:
        await lane.close()


def execute(sql: str, *arguments: object) -> Operation:
    return lambda connection: connection.execute(sql, *arguments)


def fetch_value(sql: str, *arguments: object) -> Operation:
    return lambda connection: connection.fetchval(sql, *arguments)


async def backend_of(lane: Lane) -> int:
    return int(await lane.run("pid", fetch_value("select pg_backend_pid()"), deadline_s=10.0))


async def sessions_end(connection: Connection) -> None:
    await eventually(lambda: _is_zero(connection, SESSIONS))


async def nobody_is_busy(connection: Connection) -> None:
    await eventually(lambda: _is_zero(connection, BUSY))


async def _is_zero(connection: Connection, sql: str) -> bool:
    return bool(await connection.fetchval(sql, OURS) == 0)


# Deadlines.


async def test_a_statement_without_an_answer_costs_its_connection(
    dsn: str, connection: Connection
) -> None:
    # Through a pooler the server is told of no deadline, so the lane's own must do.
    async with open_lane(dsn, deadline_s=SHORT_S, pgbouncer=True) as lane:
        pid = await backend_of(lane)
        with pytest.raises(StoreUnavailable, match=r"^nap: no answer within 0\.2 s$"):
            await lane.run("nap", execute("select pg_sleep(60)"))
        assert (lane.used, lane.idle) == (0, 0)
        assert await backend_of(lane) != pid
        assert await connection.fetchval("select pg_terminate_backend($1)", pid)


async def test_a_statement_the_server_gives_up_leaves_the_connection_in_use(dsn: str) -> None:
    async with open_lane(dsn, statement_s=SHORT_S) as lane:
        pid = await backend_of(lane)
        with pytest.raises(StoreUnavailable, match="QueryCanceledError"):
            await lane.run("nap", execute("select pg_sleep(60)"))
        assert await backend_of(lane) == pid


async def test_when_both_give_up_at_once_nothing_goes_on_running(
    dsn: str, connection: Connection
) -> None:
    async with open_lane(dsn, deadline_s=SHORT_S, statement_s=SHORT_S) as lane:
        for _ in range(3):
            with pytest.raises(StoreUnavailable):
                await lane.run("nap", execute("select pg_sleep(60)"))
        await nobody_is_busy(connection)
        assert lane.used == 0


async def test_a_statement_may_have_a_deadline_of_its_own(dsn: str) -> None:
    async with open_lane(dsn, deadline_s=SHORT_S) as lane:
        await lane.run("nap", execute("select pg_sleep(0.3)"), deadline_s=10.0)


async def test_a_short_deadline_holds_beside_a_long_one(dsn: str) -> None:
    async with open_lane(dsn, size=2) as lane, anyio.create_task_group() as tasks:
        begun, done = anyio.Event(), anyio.Event()

        async def hold(connection: Connection) -> None:
            begun.set()
            await done.wait()

        tasks.start_soon(lane.run, "hold", hold)
        await begun.wait()
        with anyio.fail_after(5), pytest.raises(StoreUnavailable, match=r"within 0\.2 s"):
            await lane.run("nap", execute("select pg_sleep(60)"), deadline_s=SHORT_S)
        assert lane.used == 1, "the long one goes on"
        done.set()
        await eventually(lambda: lane.idle == 1)


async def test_a_deadline_holds_after_others_were_met(dsn: str) -> None:
    async with open_lane(dsn, deadline_s=SHORT_S, pgbouncer=True) as lane:
        for pause_s in (0.0, SHORT_S / 2, SHORT_S * 2):  # Before and after the timer of the first.
            await lane.run("step", execute("select 1"))
            await anyio.sleep(pause_s)
            with anyio.fail_after(5), pytest.raises(StoreUnavailable, match=r"within 0\.2 s"):
                await lane.run("nap", execute("select pg_sleep(60)"))


async def test_statements_that_are_late_together_end_together(dsn: str) -> None:
    async with open_lane(dsn, size=3, deadline_s=SHORT_S, pgbouncer=True) as lane:

        async def nap() -> None:
            with pytest.raises(StoreUnavailable, match=r"within 0\.2 s"):
                await lane.run("nap", execute("select pg_sleep(60)"))

        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                for _ in range(3):
                    tasks.start_soon(nap)
        assert (lane.used, lane.idle) == (0, 0)


@pytest.mark.parametrize("is_single", [False, True])
async def test_an_operation_that_does_not_notice_its_deadline_is_cancelled(
    dsn: str, is_single: bool
) -> None:
    async with open_lane(dsn, deadline_s=SHORT_S) as lane:
        await backend_of(lane)
        with anyio.fail_after(5), pytest.raises(StoreUnavailable, match=r"within 0\.2 s"):
            await lane.run("deaf", lambda _: anyio.sleep_forever(), is_single=is_single)
        assert (lane.used, lane.idle) == (0, 0)
        assert await lane.run("step", fetch_value("select 7")) == 7


def test_deadlines_hold_on_the_next_loop_too(dsn: str) -> None:
    lane = Lane(
        functools.partial(connect, DatabaseConfig(dsn=dsn, pgbouncer=True)),
        size=1,
        deadline_s=SHORT_S,
        observe=ignore_observation,
    )

    async def step() -> None:
        await lane.run("step", execute("select 1"))
        await lane.close()  # The timer is still to come, and its loop will be gone.

    async def nap() -> None:
        with anyio.fail_after(5), pytest.raises(StoreUnavailable, match=r"within 0\.2 s"):
            await lane.run("nap", execute("select pg_sleep(60)"))

    asyncio.run(step())
    asyncio.run(nap())


async def test_whoever_finds_no_place_in_time_is_told_so(dsn: str) -> None:
    async with open_lane(dsn, deadline_s=SHORT_S) as lane, anyio.create_task_group() as tasks:
        done = anyio.Event()
        tasks.start_soon(_hold, lane, done)
        await eventually(lambda: lane.used == 1)
        with pytest.raises(StoreUnavailable, match="no connection came free in time"):
            await lane.run("late", execute("select 1"))
        assert lane.used == 1
        done.set()


async def _hold(lane: Lane, done: anyio.Event) -> None:
    async def wait(connection: Connection) -> None:
        await done.wait()

    await lane.run("hold", wait, deadline_s=60.0)


# Places.


@pytest.mark.parametrize("size", [1, 3])
async def test_a_lane_runs_as_many_statements_at_once_as_it_has_places(
    dsn: str, connection: Connection, size: int
) -> None:
    running, full = 0, anyio.Event()

    async def step(connection: Connection) -> None:
        nonlocal running
        running += 1
        assert running <= size
        if running == size:
            full.set()
        await full.wait()
        await connection.execute("select 1")
        running -= 1

    async with open_lane(dsn, size=size) as lane:
        async with anyio.create_task_group() as tasks:
            for _ in range(9):
                tasks.start_soon(lane.run, "step", step)
        assert (lane.used, lane.idle) == (0, size)
        assert await connection.fetchval(SESSIONS, OURS) == size
    await sessions_end(connection)


# Cancellation.


async def _cancel_scope(
    lane: Lane, operation: Operation, turns: int, *, is_single: bool = False
) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(functools.partial(lane.run, "step", operation, is_single=is_single))
        for _ in range(turns):
            await checkpoint()
        tasks.cancel_scope.cancel()


async def _cancel_task(
    lane: Lane, operation: Operation, turns: int, *, is_single: bool = False
) -> None:
    # As asyncio.timeout, wait_for and TaskGroup do it; anyio's shields mean nothing to these.
    task = asyncio.ensure_future(lane.run("step", operation, is_single=is_single))
    for _ in range(turns):
        await checkpoint()
    task.cancel()
    await asyncio.wait({task})


# A single statement is run by its caller's own task, for as long as nobody cancels that.
_cancel_single_scope = functools.partial(_cancel_scope, is_single=True)
_cancel_single_task = functools.partial(_cancel_task, is_single=True)
each_cancel = pytest.mark.parametrize(
    "cancel",
    [_cancel_scope, _cancel_task, _cancel_single_scope, _cancel_single_task],
    ids=["scope", "task", "scope, single", "task, single"],
)
each_way = pytest.mark.parametrize("is_single", [False, True], ids=["any", "single"])


@each_cancel
async def test_a_cancelled_caller_never_leaves_a_statement_half_done(
    dsn: str, connection: Connection, cancel: Cancel
) -> None:
    await connection.execute("create table public.effects (side text, number int)")

    async def insert_both(number: int, connection: Connection) -> None:
        async with connection.transaction():
            for side in ("left", "right"):
                await connection.execute("insert into public.effects values ($1, $2)", side, number)

    rolls = random.Random(7)
    async with open_lane(dsn, size=2) as lane:
        for number in range(200):
            await cancel(lane, functools.partial(insert_both, number), rolls.randrange(300))
        await eventually(lambda: lane.used == 0)
        assert lane.idle <= 2
        await nobody_is_busy(connection)
        assert await connection.fetchval(SESSIONS, OURS) == lane.idle
        assert await lane.run("step", fetch_value("select 7")) == 7
    left, right = [
        await connection.fetchval(
            "select array(select number from public.effects where side = $1 order by 1)", side
        )
        for side in ("left", "right")
    ]
    assert left == right
    assert 0 < len(left) <= 200
    await sessions_end(connection)


async def test_whoever_is_cancelled_begins_no_further_statement(dsn: str) -> None:
    async with open_lane(dsn) as lane:
        begun = 0
        with anyio.CancelScope() as scope:
            while begun < 5:
                begun += 1
                scope.cancel()
                await lane.run("step", fetch_value("select 7"))
        assert begun == 1
        assert (lane.used, lane.idle) == (0, 0)


@each_cancel
async def test_a_cancelled_callers_statement_goes_on_and_its_connection_comes_back(
    dsn: str, connection: Connection, cancel: Cancel
) -> None:
    await connection.execute("select pg_advisory_lock(1)")
    async with open_lane(dsn) as lane, anyio.create_task_group() as tasks:
        pid = await backend_of(lane)
        tasks.start_soon(cancel, lane, execute("select pg_advisory_lock_shared(1)"), 20)
        await eventually(lambda: connection.fetchval(BUSY, OURS))
        for _ in range(50):
            await checkpoint()
        assert lane.used == 1, "the place is taken for as long as the statement runs"
        await connection.execute("select pg_advisory_unlock(1)")
        await eventually(lambda: lane.used == 0)
        assert lane.idle == 1
        assert await backend_of(lane) == pid


@each_way
async def test_nobody_complains_of_a_failure_whose_caller_is_gone(
    dsn: str, is_single: bool
) -> None:
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, told: complaints.append(told))
    async with open_lane(dsn, deadline_s=SHORT_S, pgbouncer=True) as lane:
        for doomed in ("select 1/0", "select pg_sleep(60)"):
            await backend_of(lane)
            await _cancel_task(lane, execute(doomed), 5, is_single=is_single)
            await eventually(lambda: lane.used == 0)
    gc.collect()
    await checkpoint()
    assert complaints == []


async def test_a_result_that_arrives_while_its_caller_is_being_cancelled_is_not_lost(
    dsn: str,
) -> None:
    async with open_lane(dsn) as lane:
        with anyio.CancelScope() as scope:
            scope.cancel()
            with anyio.CancelScope(shield=True):
                result = await lane.run("step", fetch_value("select 7"))
            assert result == 7


@each_way
async def test_a_caller_cancelled_by_a_scope_waits_for_its_statement_and_has_its_result(
    dsn: str, connection: Connection, is_single: bool
) -> None:
    await connection.execute("select pg_advisory_lock(1)")
    results: list[object] = []

    async def call(lane: Lane, scope: anyio.CancelScope) -> None:
        with scope:
            lock = fetch_value("select 7 from pg_advisory_lock_shared(1)")
            results.append(await lane.run("step", lock, is_single=is_single))
            await lane.run("step", fetch_value("select 8"))

    async with open_lane(dsn) as lane, anyio.create_task_group() as tasks:
        await backend_of(lane)
        scope = anyio.CancelScope()
        tasks.start_soon(call, lane, scope)
        await eventually(lambda: connection.fetchval(BUSY, OURS))
        scope.cancel()
        for _ in range(50):
            await checkpoint()
        assert scope.cancelled_caught is False, "it waits"
        await connection.execute("select pg_advisory_unlock(1)")
    assert results == [7]
    assert scope.cancelled_caught


@each_way
@pytest.mark.parametrize("is_scope_cancelled", [False, True])
async def test_a_caller_cancelled_by_asyncio_goes_at_once_also_out_of_a_cancelled_scope(
    dsn: str, connection: Connection, is_scope_cancelled: bool, is_single: bool
) -> None:
    await connection.execute("select pg_advisory_lock(1)")
    async with open_lane(dsn) as lane:
        await backend_of(lane)
        scope = anyio.CancelScope()

        async def call() -> None:
            with scope:
                lock = execute("select pg_advisory_lock_shared(1)")
                await lane.run("step", lock, is_single=is_single)

        task = asyncio.ensure_future(call())
        await eventually(lambda: connection.fetchval(BUSY, OURS))
        if is_scope_cancelled:
            scope.cancel()
            await checkpoint()
        task.cancel()
        with anyio.fail_after(5):
            await asyncio.wait({task})
        assert lane.used == 1, "the statement goes on"
        await connection.execute("select pg_advisory_unlock(1)")
        await eventually(lambda: lane.used == 0)


async def test_whoever_gives_up_waiting_for_a_place_takes_none_along(dsn: str) -> None:
    async with open_lane(dsn) as lane, anyio.create_task_group() as tasks:
        done = anyio.Event()
        tasks.start_soon(_hold, lane, done)
        await eventually(lambda: lane.used == 1)
        for turns in range(20):
            await _cancel_task(lane, execute("select 1"), turns)
            await _cancel_scope(lane, execute("select 1"), turns)
        done.set()
        await eventually(lambda: lane.used == 0)
        assert lane.idle == 1


# What breaks.


async def test_a_caller_whose_idle_connection_was_cut_does_not_connect_in_his_own_task(
    dsn: str, connection: Connection
) -> None:
    # What connects has a timeout, which would cancel the task that it runs in: the caller's.
    tasks: list[object] = []

    async def connect_somewhere() -> asyncpg.Connection:
        tasks.append(asyncio.current_task())
        return await connect(DatabaseConfig(dsn=dsn))

    lane = Lane(connect_somewhere, size=1, deadline_s=10.0, observe=ignore_observation)
    pid = await lane.run("pid", fetch_value("select pg_backend_pid()"), is_single=True)
    [idle] = lane._idle
    await connection.fetchval("select pg_terminate_backend($1)", pid)
    await eventually(idle.is_closed)
    assert await lane.run("step", fetch_value("select 7"), is_single=True) == 7
    await lane.close()
    assert len(tasks) == 2
    assert asyncio.current_task() not in tasks


async def test_an_idle_connection_that_was_cut_is_replaced_without_a_word(
    dsn: str, connection: Connection
) -> None:
    async with open_lane(dsn) as lane:
        pid = await backend_of(lane)
        [idle] = lane._idle
        await connection.fetchval("select pg_terminate_backend($1)", pid)
        await eventually(idle.is_closed)
        assert await backend_of(lane) != pid
        assert lane.idle == 1


async def test_a_statement_whose_connection_is_cut_fails_and_the_next_one_works(
    dsn: str, connection: Connection
) -> None:
    async with open_lane(dsn) as lane:
        pid = await backend_of(lane)
        with pytest.raises(StoreUnavailable):
            await lane.run("cut", execute("select pg_terminate_backend(pg_backend_pid())"))
        assert (lane.used, lane.idle) == (0, 0)
        assert await backend_of(lane) != pid
        assert await connection.fetchval(SESSIONS, OURS) == 1


async def test_what_an_operation_raises_by_itself_passes_through_and_costs_its_connection(
    dsn: str, connection: Connection
) -> None:
    async def fail(connection: Connection) -> None:
        await connection.execute("begin")
        raise LookupError("mine")

    def fail_at_once(connection: Connection) -> Awaitable[None]:
        raise LookupError("mine")

    async with open_lane(dsn) as lane:
        for operation in (fail, fail_at_once):
            with pytest.raises(LookupError, match="mine"):
                await lane.run("step", operation)
        assert lane.used == 0
        assert await lane.run("step", fetch_value("select 7")) == 7
        await eventually(lambda: connection.fetchval(f"select ({SESSIONS}) = 1", OURS))


async def test_an_argument_the_driver_refuses_is_refused_for_good(dsn: str) -> None:
    async with open_lane(dsn) as lane:
        for argument in ("seven", 2**40, "\ud800"):
            with pytest.raises(StoreError) as caught:
                await lane.run("step", fetch_value("select $1::int", argument))
            assert not isinstance(caught.value, StoreUnavailable)
        assert await lane.run("step", fetch_value("select $1::int", 7)) == 7


TRANSIENT = {
    "08000": "connection exception",
    "08003": "connection does not exist",
    "08006": "connection failure",
    "25006": "read-only: the old primary after a failover",
    "25P03": "idle in transaction timeout",
    "26000": "the prepared statement is gone",
    "40001": "serialization failure",
    "40P01": "deadlock",
    "42P10": "no index for on conflict, for a moment",
    "53000": "insufficient resources",
    "53100": "disk full",
    "53200": "out of memory",
    "53300": "too many connections",
    "55P03": "lock not available",
    "57014": "statement timeout",
    "57P01": "admin shutdown",
    "57P02": "crash shutdown",
    "57P03": "starting up",
    "57P05": "idle session timeout",
}
FOR_GOOD = {
    "22003": "number out of range",
    "22P02": "invalid json",
    "22P05": "untranslatable character",
    "23502": "not null violation",
    "23505": "unique violation",
    "23514": "check violation",
    "25P02": "in a failed transaction",
    "28P01": "wrong password",
    "3D000": "no such database",
    "42501": "no privilege",
    "42601": "syntax error",
    "42P01": "no such table",
    "42703": "no such column",
    "54001": "statement too complex",
    "P0001": "raised by a trigger",
    "XX000": "internal error",
}
COSTS_THE_CONNECTION = {"25006", "25P03", "26000"} | {
    code for code in TRANSIENT if code.startswith(("08", "57P"))
}


async def test_errors_pass_or_stay_by_their_sqlstate(dsn: str) -> None:
    async with open_lane(dsn) as lane:
        for code in [*TRANSIENT, *FOR_GOOD]:
            pid = await backend_of(lane)
            raise_it = f"do $$ begin raise exception 'x' using errcode = '{code}'; end $$"
            with pytest.raises(StoreError, match=r"^step: ") as caught:
                await lane.run("step", execute(raise_it))
            assert isinstance(caught.value, StoreUnavailable) == (code in TRANSIENT), code
            assert isinstance(caught.value.__cause__, asyncpg.PostgresError)
            assert caught.value.__cause__.sqlstate == code
            is_replaced = await backend_of(lane) != pid
            assert is_replaced == (code in COSTS_THE_CONNECTION), code
            assert breaks_connection(caught.value.__cause__) == is_replaced


# Connecting.


async def test_failing_connects_leave_no_place_taken_and_no_session_open(
    dsn: str, connection: Connection
) -> None:
    name = await connection.fetchval("select current_database()")
    async with open_lane(dsn) as lane:
        # As an old primary after a failover, or a DSN that names only standbys.
        await connection.execute(f"alter database {name} set default_transaction_read_only = on")
        for _ in range(5):
            with pytest.raises(StoreUnavailable):
                await lane.run("step", execute("select 1"))
        await sessions_end(connection)
        await connection.execute("set transaction_read_only = off")
        async with connection.transaction(readonly=False):
            await connection.execute(f"alter database {name} reset default_transaction_read_only")
        assert await lane.run("step", fetch_value("select 7")) == 7
        assert (lane.used, lane.idle) == (0, 1)


@pytest.mark.parametrize(
    ("dsn", "error"),
    [
        ("postgresql:///x?host=/nowhere", StoreUnavailable),
        ("postgresql://127.0.0.1:1/x", StoreUnavailable),
        ("postgresql://db.invalid/x", StoreUnavailable),
        ("mysql://127.0.0.1/x", ConfigError),
        ("postgresql://127.0.0.1:port/x", ConfigError),
        ("postgresql://127.0.0.1/x?sslmode=perhaps", ConfigError),
    ],
)
async def test_an_address_where_nothing_is_differs_from_one_nobody_can_read(
    dsn: str, error: type[Exception]
) -> None:
    async with open_lane(dsn) as lane:
        for _ in range(3):
            with pytest.raises(error):
                await lane.run("step", execute("select 1"))
        assert (lane.used, lane.idle) == (0, 0)


async def test_closing_waits_for_nobody_and_leaves_nothing_open(
    dsn: str, connection: Connection
) -> None:
    async with open_lane(dsn, size=2) as lane, anyio.create_task_group() as tasks:
        done = anyio.Event()
        await backend_of(lane)
        tasks.start_soon(_hold, lane, done)
        await eventually(lambda: lane.used == 1)
        await lane.close()
        done.set()
        await eventually(lambda: lane.used == 0)
        await sessions_end(connection)
        assert await lane.run("step", fetch_value("select 7")) == 7, "it may be used again"


async def test_every_statement_is_observed_once_with_whether_it_was_answered(dsn: str) -> None:
    seen: list[tuple[str, bool]] = []

    def observe(statement: str, seconds: float, answered: bool) -> None:
        assert seconds >= 0
        seen.append((statement, answered))

    store = PostgresStore(DatabaseConfig(dsn=dsn), observe)
    await store.list_gates()
    with pytest.raises(StoreError):
        await store.lanes["client"].run("bad", execute("select 1/0"))
    await store.close()
    assert seen == [("list_topics", True), ("bad", False)]


# Under other people's settings and hands.


async def test_ddl_under_prepared_statements_disturbs_no_statement(
    dsn: str, connection: Connection
) -> None:
    world = PostgresWorld(dsn, connection)
    store = world.store
    index = await connection.fetchval("select pg_get_indexdef('chronos.jobs_unique_key'::regclass)")
    ready = await connection.fetchval("select pg_get_indexdef('chronos.jobs_ready'::regclass)")
    try:
        for number in range(10):
            jobs = [new_job(unique_key="k"), new_job(unique_key="k"), new_job(delay_s=60.0)]
            assert set(await store.enqueue_jobs(jobs)) == {jobs[0].id, jobs[2].id}
            assert len(await store.enqueue_jobs([new_job() for _ in range(500)])) == 500
            claimed = await world.claim()
            assert len(claimed) == 501
            assert all([await world.finish(job) for job in claimed[:3]])
            assert await store.cancel_jobs([jobs[2].id]) == {jobs[2].id: "cancelled"}
            assert len(await store.get_jobs([job.id for job in jobs])) == 2
            await store.survey_topics(100)
            await connection.execute(f"alter table chronos.jobs add column extra_{number} int")
            await connection.execute(
                f"alter table chronos.job_history add column extra_{number} int"
            )
            await connection.execute(f"drop index chronos.jobs_unique_key; {index}")
            await connection.execute(f"drop index chronos.jobs_ready; {ready}")
            await connection.execute("analyze chronos.jobs")
    finally:
        await store.close()


async def test_a_statement_whose_result_changes_its_shape_is_planned_anew(
    dsn: str, connection: Connection
) -> None:
    await connection.execute("create table public.things as select 1 as a")
    async with open_lane(dsn) as lane:
        for columns in range(2, 6):
            rows = await lane.run("step", lambda one: one.fetch("select * from public.things"))
            assert len(rows[0]) == columns - 1
            await connection.execute(f"alter table public.things add column c{columns} int")


@pytest.mark.parametrize("isolation", ["serializable", "repeatable read"])
async def test_sessions_read_committed_whatever_the_database_prefers(
    dsn: str, connection: Connection, isolation: str
) -> None:
    name = await connection.fetchval("select current_database()")
    await connection.execute(
        f"alter database {name} set default_transaction_isolation = '{isolation}'"
    )
    world = PostgresWorld(dsn, connection)
    try:
        async with open_lane(dsn) as lane:
            shown = await lane.run("show", fetch_value("show transaction_isolation"))
            assert shown == "read committed"

        jobs = [new_job(unique_key=f"k{number}") for number in range(50)]
        assert len(await world.store.enqueue_jobs(jobs)) == 50
        ended: list[bool] = []

        async def claim_and_finish(one: PostgresWorld) -> None:
            ended.extend([await one.finish(job) for job in await one.claim(room=10)])

        others = [PostgresWorld(dsn, connection) for _ in range(4)]
        async with anyio.create_task_group() as tasks:
            for one in [world, *others]:
                tasks.start_soon(claim_and_finish, one)
        for other in others:
            await other.store.close()
        assert ended == [True] * 50
    finally:
        await world.store.close()
