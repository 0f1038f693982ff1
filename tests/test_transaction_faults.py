"""A handler's transaction that is stopped, cut off or made to wait: all of it happens, or nothing.

The proxy loses what is said on the way to the server or back; nobody is killed here.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import asyncpg
import pytest

from chronos_runtime import Chronos, Client, Job, Retry, Snooze, StoreUnavailable
from chronos_runtime.backoff import Fixed
from chronos_runtime.store import handler_connections
from chronos_runtime.store.migrations import Connection
from tests.crash.proxy import Proxy, open_proxy
from tests.eventually import eventually
from tests.ledger import DEADLINE_S, Ledger, counts, make_runtime, run_counted, run_one, wait_state
from tests.test_runtime import working

LATER_S = 3_600.0
COMMIT = "COMMIT;"
RESET = "pg_advisory_unlock_all"
HELD_BY_THE_TEST = 7  # A lock that holds up a commit.

HOLD_COMMITS_UP = f"""
create function public.wait_for_the_test() returns trigger language plpgsql as $$
begin
    perform pg_advisory_xact_lock({HELD_BY_THE_TEST});
    return null;
end $$;
create constraint trigger wait after insert on public.ledger
deferrable initially deferred for each row execute function public.wait_for_the_test();
"""


@pytest.fixture
async def ledger(connection: Connection) -> Ledger:
    """A table of the handler's own."""
    ledger = Ledger(connection)
    await ledger.open()
    return ledger


@pytest.fixture
async def proxy(dsn: str, anyio_backend: object) -> AsyncIterator[Proxy]:
    """Between the worker and the database; the ledger is read past it."""
    async with open_proxy(dsn) as proxy:
        yield proxy


def make_app(ledger: Ledger, inside: Callable[[Job, Connection], Awaitable[None]]) -> Chronos:
    """An app whose handler writes, and then does something in its transaction."""
    app = Chronos()

    @app.handler("pay", max_attempts=2, backoff=Fixed(0.0))
    async def pay(job: Job, payload: object) -> None:
        async with job.transaction() as connection:
            await ledger.note(job, connection)
            await inside(job, connection)

    return app


async def go_on(job: Job, connection: Connection) -> None:
    """Nothing more inside."""


@pytest.mark.parametrize("how", ["cancel", "timeout", "drain"])
async def test_a_handler_stopped_in_its_transaction_leaves_nothing(
    dsn: str, ledger: Ledger, how: str
) -> None:
    is_inside = anyio.Event()

    async def wait(job: Job, connection: Connection) -> None:
        is_inside.set()
        await connection.execute("select pg_sleep(3600)")

    app = make_app(ledger, wait)
    runtime = make_runtime(app, dsn, executor={"drain_s": 0.1})
    timeout_s = 0.1 if how == "timeout" else None
    async with Client.connect(dsn, app) as client:
        async with working(runtime) as stop:
            enqueued = await client.enqueue("pay", {}, max_attempts=1, timeout_s=timeout_s)
            await is_inside.wait()
            if how == "cancel":
                await client.cancel(enqueued.id)
            elif how == "drain":
                stop.set()
            ends = {"cancel": "cancelled", "timeout": "dead", "drain": "ready"}
            await wait_state(client, enqueued.id, ends[how])
        assert await ledger.entries(enqueued.id) == []
    assert sum(counts(runtime, "pay").values()) == (2 if how == "timeout" else 1)


@asynccontextmanager
async def commit_held_up(ledger: Ledger) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """Commits wait in the block; what it gives waits until one does."""
    await ledger.connection.execute(HOLD_COMMITS_UP)
    await ledger.connection.execute("select pg_advisory_lock($1)", HELD_BY_THE_TEST)

    async def one_waits() -> None:
        async def look() -> object:
            return await ledger.connection.fetchval(
                "select pid from pg_locks where locktype = 'advisory' and not granted"
            )

        await eventually(look, DEADLINE_S)

    yield one_waits
    await ledger.connection.execute("select pg_advisory_unlock($1)", HELD_BY_THE_TEST)


@pytest.mark.parametrize("how", ["cancel", "lost", "drain", "asyncio"])
async def test_a_handler_stopped_while_it_commits_has_committed(
    dsn: str, ledger: Ledger, how: str
) -> None:
    app = Chronos()
    tasks: list[asyncio.Task[Any]] = []

    @app.handler("pay")
    async def pay(job: Job, payload: object) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.append(task)
        async with job.transaction() as connection:
            await ledger.note(job, connection)

    waits, is_stopped = anyio.Event(), anyio.Event()

    @app.handler("wait")
    async def wait(job: Job, payload: object) -> None:
        waits.set()
        try:
            await anyio.sleep_forever()
        finally:
            is_stopped.set()

    runtime = make_runtime(app, dsn, executor={"drain_s": 0.05})
    async with Client.connect(dsn, app) as client, working(runtime) as stop:
        async with commit_held_up(ledger) as one_waits:
            enqueued = await client.enqueue("pay", {})
            await one_waits()
            [slot] = [one for one in runtime._executor._slots if one.job is not None]
            if how == "asyncio":
                tasks[0].cancel()
            elif how == "drain":
                await client.enqueue("wait", {})
                await waits.wait()
                stop.set()
                await is_stopped.wait()  # The deadline of the drain stops both.
            else:
                slot.stop("cancel" if how == "cancel" else "lost")
            assert await ledger.entries(enqueued.id) == []
        job = await wait_state(client, enqueued.id, "succeeded")
    assert (job.attempt, job.errors, await ledger.entries(job.id)) == (1, [], [1])
    assert counts(runtime, "pay") == {"succeeded": 1}


async def test_a_timeout_of_asyncio_cannot_tear_a_commit(dsn: str, ledger: Ledger) -> None:
    app = Chronos()
    timers: list[asyncio.Timeout] = []

    async def pay_in_time(job: Job) -> None:
        async with asyncio.timeout(None) as timer:
            timers.append(timer)
            async with job.transaction() as connection:
                await ledger.note(job, connection)

    @app.handler("pay", max_attempts=1)
    async def pay(job: Job, payload: object) -> None:
        with pytest.raises(TimeoutError):
            await pay_in_time(job)

    async with Client.connect(dsn, app) as client, working(make_runtime(app, dsn)):
        async with commit_held_up(ledger) as one_waits:
            enqueued = await client.enqueue("pay", {})
            await one_waits()
            timers[0].reschedule(0.0)
            await eventually(timers[0].expired)
        job = await wait_state(client, enqueued.id, "succeeded", "dead")
    assert (job.state, await ledger.entries(job.id)) == ("succeeded", [1])


@pytest.mark.parametrize(
    ("end", "state", "counted"),
    [
        ("done", "succeeded", {"succeeded": 1}),
        (Snooze(LATER_S), "scheduled", {"snoozed": 1}),
        (Retry(LATER_S, "again"), "scheduled", {"failed": 1, "retried": 1}),
    ],
    ids=["finish", "snooze", "retry"],
)
@pytest.mark.parametrize("is_away", [False, True], ids=["cut", "away"])
async def test_a_commit_whose_reply_was_lost_is_known_to_have_happened(
    dsn: str,
    ledger: Ledger,
    proxy: Proxy,
    end: object,
    *,
    state: str,
    counted: dict[str, float],
    is_away: bool,
) -> None:
    app = Chronos()
    trap = proxy.swallow(COMMIT, {1}, has_rows=False, then=proxy.go_away if is_away else None)
    has_left = anyio.Event()

    @app.handler("pay")
    async def pay(job: Job, payload: object) -> None:
        transaction = job.transaction()
        async with transaction as connection:
            await ledger.note(job, connection)
            transaction.end_with(end)
        has_left.set()

    async with Client.connect(dsn, app) as client, anyio.create_task_group() as tasks:

        async def be_away_for_a_while() -> None:
            await eventually(lambda: proxy.refused > 3, DEADLINE_S)
            assert not has_left.is_set(), "nobody can know yet"
            proxy.come_back()

        if is_away:
            tasks.start_soon(be_away_for_a_while)
        runtime = make_runtime(app, proxy.dsn)
        job, ends = await run_counted(app, client, runtime, state)
    assert (trap.sprung, has_left.is_set()) == (1, True)
    assert await ledger.entries(job.id) == [1]
    assert ends == counted


async def test_a_commit_that_never_arrived_is_known_not_to_have_happened(
    dsn: str, ledger: Ledger, proxy: Proxy
) -> None:
    trap = proxy.lose(COMMIT, {1})
    app = make_app(ledger, go_on)
    async with Client.connect(dsn, app) as client:
        job, ends = await run_counted(app, client, make_runtime(app, proxy.dsn), "succeeded")
    assert trap.sprung == 1
    assert [error["type"] for error in job.errors] == ["StoreUnavailable"]
    assert await ledger.entries(job.id) == [2]
    assert ends == {"failed": 1, "retried": 1, "succeeded": 1}


async def test_a_session_that_breaks_after_the_commit_troubles_nobody(
    dsn: str, ledger: Ledger, proxy: Proxy
) -> None:
    trap = proxy.swallow(RESET, {1})
    job = await run_one(make_app(ledger, go_on), proxy.dsn, "succeeded")
    assert trap.sprung == 1
    assert (job.attempt, job.errors, await ledger.entries(job.id)) == (1, [], [1])


async def test_a_server_that_restarts_is_waited_for_before_anything_was_done(
    dsn: str, ledger: Ledger, proxy: Proxy
) -> None:
    app = Chronos()
    is_about_to = anyio.Event()

    @app.handler("pay", max_attempts=1)
    async def pay(job: Job, payload: object) -> None:
        proxy.go_away()
        is_about_to.set()
        async with job.transaction() as connection:
            await ledger.note(job, connection)

    async with Client.connect(dsn, app) as client, working(make_runtime(app, proxy.dsn)):
        enqueued = await client.enqueue("pay", {})
        await is_about_to.wait()
        await eventually(lambda: proxy.refused > 3, DEADLINE_S)
        proxy.come_back()
        job = await wait_state(client, enqueued.id, "succeeded", "dead")
    assert (job.state, job.attempt, await ledger.entries(job.id)) == ("succeeded", 1, [1])


async def test_a_session_cut_in_the_middle_leaves_nothing(dsn: str, ledger: Ledger) -> None:
    async def cut(job: Job, connection: Connection) -> None:
        if job.attempt == 1:
            pid = connection.get_server_pid()
            await ledger.connection.execute("select pg_terminate_backend($1)", pid)

    job = await run_one(make_app(ledger, cut), dsn, "succeeded")
    assert [error["type"] for error in job.errors] == ["StoreUnavailable"]
    assert await ledger.entries(job.id) == [2]


async def test_a_transaction_in_which_nothing_happens_is_ended_by_the_server(
    dsn: str, ledger: Ledger
) -> None:
    async def stand_idle(job: Job, connection: Connection) -> None:
        pid = connection.get_server_pid()

        async def is_gone() -> bool:
            return not await ledger.connection.fetchval(
                "select true from pg_stat_activity where pid = $1", pid
            )

        if job.attempt == 1:
            await eventually(is_gone, DEADLINE_S)

    database = {"transaction_idle_s": 0.05}
    job = await run_one(make_app(ledger, stand_idle), dsn, "succeeded", database=database)
    assert [error["type"] for error in job.errors] == ["StoreUnavailable"]
    assert await ledger.entries(job.id) == [2]


async def test_an_error_of_sql_that_was_caught_inside_is_no_success(
    dsn: str, ledger: Ledger
) -> None:
    async def stumble(job: Job, connection: Connection) -> None:
        with pytest.raises(asyncpg.DivisionByZeroError):
            await connection.execute("select 1 / 0")

    job = await run_one(make_app(ledger, stumble), dsn, "dead")
    assert "a statement in it had failed" in str(job.errors[0]["message"])
    assert await ledger.entries(job.id) == []


async def test_a_constraint_that_fails_at_the_commit_leaves_nothing(
    dsn: str, ledger: Ledger
) -> None:
    await ledger.connection.execute(
        "alter table public.ledger add constraint once unique (job_id) deferrable"
        " initially deferred"
    )
    job = await run_one(make_app(ledger, ledger.note), dsn, "dead")
    assert "UniqueViolationError" in str(job.errors[0]["message"])
    assert (job.errors[0]["type"], await ledger.entries(job.id)) == ("StoreError", [])


async def test_a_handler_that_commits_by_itself_is_told(dsn: str, ledger: Ledger) -> None:
    async def commit(job: Job, connection: Connection) -> None:
        await connection.execute("rollback")

    job = await run_one(make_app(ledger, commit), dsn, "dead")
    assert "leave that to the block" in str(job.errors[0]["message"])


async def test_more_handlers_than_connections_wait_for_their_turn(dsn: str, ledger: Ledger) -> None:
    app = Chronos()
    asked, inside, most = 0, 0, 0
    all_asked, two_are_inside = anyio.Event(), anyio.Event()

    @app.handler("pay")
    async def pay(job: Job, payload: object) -> None:
        nonlocal asked, inside, most
        asked += 1
        if asked == 6:
            all_asked.set()
        async with job.transaction() as connection:
            inside += 1
            most = max(most, inside)
            if inside == 2:
                two_are_inside.set()
            await all_asked.wait()
            await two_are_inside.wait()
            await ledger.note(job, connection)
            inside -= 1

    runtime = make_runtime(app, dsn, database={"transaction_connections": 2})
    async with Client.connect(dsn, app) as client, working(runtime):
        jobs = await client.enqueue_many(client.job("pay", {}) for _ in range(6))
        await all_asked.wait()
        for job in jobs:
            await wait_state(client, job.id, "succeeded")
    assert most == 2
    assert counts(runtime, "pay") == {"succeeded": 6}


SESSION = """
select current_user, current_setting('search_path'), to_regclass('left_behind'),
    (select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid())
"""


async def test_what_a_handler_leaves_in_its_session_does_not_reach_the_next(
    dsn: str, ledger: Ledger
) -> None:
    app = Chronos()
    sessions: list[tuple[object, ...]] = []
    pids: set[int] = set()

    @app.handler("pay")
    async def pay(job: Job, payload: object) -> None:
        transaction = job.transaction()
        async with transaction as connection:
            pids.add(connection.get_server_pid())
            sessions.extend(map(tuple, await connection.fetch(SESSION)))
            await connection.execute("create temp table left_behind (number integer)")
            await connection.execute("select pg_advisory_lock(1)")
            await connection.execute("set search_path = nowhere; set statement_timeout = 1")
            await connection.execute("set role pg_monitor")
            await connection.set_type_codec(
                "jsonb", schema="pg_catalog", encoder=lambda value: f'"{value}"', decoder=str
            )
            transaction.end_with({"as": "ever"})

    runtime = make_runtime(app, dsn, database={"transaction_connections": 1})
    async with Client.connect(dsn, app) as client, working(runtime):
        for _ in range(3):
            enqueued = await client.enqueue("pay", {})
            job = await wait_state(client, enqueued.id, "succeeded")
            assert job.result == {"as": "ever"}, "written as ours are, whatever the handler set"
    assert len(pids) == 1
    assert len(set(sessions)) == 1


@pytest.mark.parametrize("pgbouncer", [False, True])
async def test_a_transaction_is_read_committed_and_does_not_stand_idle_whatever_the_server_says(
    dsn: str, ledger: Ledger, pgbouncer: bool
) -> None:
    app = Chronos()
    database = await ledger.connection.fetchval("select current_database()")
    await ledger.connection.execute(
        f"alter database {database} set default_transaction_isolation = serializable"
    )

    @app.handler("pay")
    async def pay(job: Job, payload: object) -> None:
        transaction = job.transaction()
        async with transaction as connection:
            idle = await connection.fetchval("show idle_in_transaction_session_timeout")
            level = await connection.fetchval("show transaction_isolation")
            transaction.end_with([level, idle])

    settings = {"pgbouncer": pgbouncer, "transaction_idle_s": 45.0}
    job = await run_one(app, dsn, "succeeded", database=settings)
    assert job.result == ["read committed", "45s"]


async def test_a_worker_goes_though_a_task_left_behind_holds_a_transaction(
    dsn: str, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = Chronos()
    tasks: list[asyncio.Task[None]] = []
    has_begun, goes_on = anyio.Event(), anyio.Event()
    monkeypatch.setattr(handler_connections, "_GOODBYE_S", 0.05)

    async def stay(job: Job) -> None:
        async with job.transaction() as connection:
            await ledger.note(job, connection)
            has_begun.set()
            await goes_on.wait()

    @app.handler("pay")
    async def pay(job: Job, payload: object) -> None:
        tasks.append(asyncio.ensure_future(stay(job)))
        await has_begun.wait()

    job = await run_one(app, dsn, "succeeded")
    goes_on.set()
    with pytest.raises(StoreUnavailable):
        await tasks[0]
    assert await ledger.entries(job.id) == []
