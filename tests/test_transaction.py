"""The fenced transaction: what a handler writes and the end of its job, together or not at all."""

import asyncio
import json
import logging

import anyio
import pytest

from chronos_runtime import (
    Cancel,
    Chronos,
    ClaimLost,
    Client,
    Discard,
    InputError,
    Job,
    Retry,
    Snooze,
    Transaction,
)
from chronos_runtime.backoff import Fixed
from chronos_runtime.store.migrations import Connection
from tests.actors.bench import ExecutorBench, make_job
from tests.eventually import eventually
from tests.ledger import DEADLINE_S, Ledger, counts, make_runtime, run_counted, run_one, wait_state
from tests.test_runtime import working

LATER_S = 3_600.0


@pytest.fixture
async def ledger(connection: Connection) -> Ledger:
    """A table of the handler's own."""
    ledger = Ledger(connection)
    await ledger.open()
    return ledger


async def test_writes_and_the_end_are_committed_together(dsn: str, ledger: Ledger) -> None:
    app = Chronos()

    @app.handler("pay")
    async def pay(job: Job, payload: object) -> None:
        transaction = job.transaction()
        async with transaction as connection:
            await ledger.note(job, connection)
            assert await ledger.entries(job.id) == []
            transaction.end_with({"paid": 1})
        assert await ledger.entries(job.id) == [1]

    job = await run_one(app, dsn, "succeeded")
    assert job.result == {"paid": 1}
    assert await ledger.entries(job.id) == [1]


@pytest.mark.parametrize(
    ("end", "state", "result", "message", "counted"),
    [
        (None, "succeeded", None, None, {"succeeded": 1}),
        ([1, 2], "succeeded", [1, 2], None, {"succeeded": 1}),
        (Snooze(LATER_S), "scheduled", None, None, {"snoozed": 1}),
        (Retry(LATER_S, "again"), "scheduled", None, "again", {"failed": 1, "retried": 1}),
        (Cancel("withdrawn"), "cancelled", None, "withdrawn", {"cancelled": 1}),
        (Discard("no use"), "dead", None, "no use", {"failed": 1, "dead": 1}),
        (ValueError("no"), "scheduled", None, "no", {"failed": 1, "retried": 1}),
        (Snooze(-1.0), "scheduled", None, "Snooze.for_s", {"failed": 1, "retried": 1}),
    ],
    ids=["nothing", "result", "snooze", "retry", "cancel", "discard", "error", "nonsense"],
)
async def test_a_job_ends_as_its_transaction_says_and_is_counted_once(
    dsn: str,
    ledger: Ledger,
    end: object,
    state: str,
    *,
    result: object,
    message: str | None,
    counted: dict[str, float],
) -> None:
    app = Chronos()

    @app.handler("pay", backoff=Fixed(LATER_S))
    async def pay(job: Job, payload: object) -> None:
        transaction = job.transaction()
        async with transaction as connection:
            await ledger.note(job, connection)
            if end is not None:
                transaction.end_with(end)

    async with Client.connect(dsn, app) as client:
        job, ends = await run_counted(app, client, make_runtime(app, dsn), state)
    assert (job.result, job.attempt) == (
        result,
        0 if isinstance(end, Snooze) and not message else 1,
    )
    assert len(job.errors) == (0 if message is None else 1)
    assert message is None or message in str(job.errors[0]["message"])
    assert await ledger.entries(job.id) == [1]
    assert ends == counted


async def test_a_failure_that_is_committed_is_tried_again_at_once_where_it_says_so(
    dsn: str, ledger: Ledger
) -> None:
    app = Chronos()

    @app.handler("pay", max_attempts=3, backoff=Fixed(0.0))
    async def pay(job: Job, payload: object) -> None:
        transaction = job.transaction()
        async with transaction as connection:
            await ledger.note(job, connection)
            transaction.end_with(ValueError("no"))

    async with Client.connect(dsn, app) as client:
        job, ends = await run_counted(app, client, make_runtime(app, dsn), "dead")
    assert await ledger.entries(job.id) == [1, 2, 3]
    assert [error["attempt"] for error in job.errors] == [1, 2, 3]
    assert ends == {"failed": 3, "retried": 2, "dead": 1}


async def test_a_job_given_back_runs_again_soon_though_its_handler_had_not_ended(
    dsn: str, ledger: Ledger
) -> None:
    app = Chronos()

    @app.handler("pay", max_attempts=3)
    async def pay(job: Job, payload: object) -> None:
        async with (transaction := job.transaction()) as connection:
            await ledger.note(job, connection)
            transaction.end_with(Retry(0.0) if job.attempt < 3 else None)
        if job.attempt < 3:
            await eventually(is_refused)

    async def is_refused() -> bool:
        """Whether this process has claimed it again, and put it off for a moment."""
        state = await ledger.connection.fetchval("select state::text from chronos.jobs")
        return bool(state == "scheduled")

    # The scheduler wakes because it was told, or never.
    scheduler = {"interval_s": LATER_S, "idle_interval_s": LATER_S}
    job = await run_one(app, dsn, "succeeded", scheduler=scheduler)
    assert await ledger.entries(job.id) == [1, 2, 3]


async def test_a_job_that_was_to_be_cancelled_is_not_given_back(dsn: str, ledger: Ledger) -> None:
    app = Chronos()

    @app.handler("pay")
    async def pay(job: Job, payload: object) -> None:
        transaction = job.transaction()
        async with transaction:
            await ledger.connection.execute("update chronos.jobs set cancel_requested = true")
            transaction.end_with(Snooze(LATER_S))

    async with Client.connect(dsn, app) as client:
        _, ends = await run_counted(app, client, make_runtime(app, dsn), "cancelled")
    assert ends == {"cancelled": 1}


async def test_a_failure_takes_the_writes_back(dsn: str, ledger: Ledger) -> None:
    app = Chronos()

    @app.handler("pay", max_attempts=1)
    async def pay(job: Job, payload: object) -> None:
        async with job.transaction() as connection:
            await ledger.note(job, connection)
            raise ValueError("no")

    job = await run_one(app, dsn, "dead")
    assert await ledger.entries(job.id) == []
    assert job.errors[-1]["message"] == "no"


async def test_a_lost_claim_takes_the_writes_back(dsn: str, ledger: Ledger) -> None:
    app = Chronos()
    troubles: list[BaseException] = []

    @app.handler("pay")
    async def pay(job: Job, payload: object) -> None:
        try:
            async with job.transaction() as connection:
                await ledger.note(job, connection)
                if job.attempt == 1:  # As if the lease had lapsed and another had taken it over.
                    await ledger.connection.execute(
                        "update chronos.jobs set state = 'ready', lease_token = null,"
                        " lease_until = null where id = $1",
                        job.id,
                    )
        except ClaimLost as error:
            troubles.append(error)
            raise

    async with Client.connect(dsn, app) as client:
        job, ends = await run_counted(app, client, make_runtime(app, dsn), "succeeded")
    assert await ledger.entries(job.id) == [2]
    assert len(troubles) == 1
    assert ends == {"stale": 1, "succeeded": 1}


@pytest.mark.parametrize("goes_on_with", ["a result", ValueError("too late")], ids=str)
async def test_what_a_handler_does_after_the_commit_changes_nothing_and_is_told(
    dsn: str, ledger: Ledger, goes_on_with: object, caplog: pytest.LogCaptureFixture
) -> None:
    app = Chronos()

    @app.handler("pay")
    async def pay(job: Job, payload: object) -> object:
        async with job.transaction() as connection:
            await ledger.note(job, connection)
        with pytest.raises(InputError, match="has ended"):
            job.transaction()
        if isinstance(goes_on_with, Exception):
            raise goes_on_with
        return goes_on_with

    caplog.set_level(logging.WARNING, logger="chronos_runtime")
    async with Client.connect(dsn, app) as client:
        job, ends = await run_counted(app, client, make_runtime(app, dsn), "succeeded")
    assert (job.result, job.errors) == (None, [])
    assert ends == {"succeeded": 1}
    assert "had ended with its transaction" in caplog.text


async def test_a_handler_may_try_a_second_transaction_after_one_that_failed(
    dsn: str, ledger: Ledger
) -> None:
    app = Chronos()

    async def fail(job: Job, transaction: Transaction) -> None:
        async with transaction as connection:
            await ledger.note(job, connection)
            raise LookupError

    @app.handler("pay", max_attempts=1)
    async def pay(job: Job, payload: object) -> None:
        first = job.transaction()
        with pytest.raises(LookupError):
            await fail(job, first)
        with pytest.raises(InputError, match="entered once"):
            await fail(job, first)
        async with job.transaction() as connection, connection.transaction():
            await ledger.note(job, connection)

    job = await run_one(app, dsn, "succeeded", "dead")
    assert (job.state, await ledger.entries(job.id)) == ("succeeded", [1])


async def test_of_two_transactions_at_once_the_first_to_end_counts(
    dsn: str, ledger: Ledger
) -> None:
    app = Chronos()

    async def pay_twice(job: Job) -> None:
        async with job.transaction() as connection:
            await ledger.note(job, connection)
            async with job.transaction() as other:
                await ledger.note(job, other)

    @app.handler("pay", max_attempts=1)
    async def pay(job: Job, payload: object) -> None:
        with pytest.raises(ClaimLost):
            await pay_twice(job)

    job = await run_one(app, dsn, "succeeded", "dead")
    assert (job.state, await ledger.entries(job.id)) == ("succeeded", [1])


async def test_a_task_left_behind_ends_nothing_after_its_handler(dsn: str, ledger: Ledger) -> None:
    app = Chronos()
    tasks: list[asyncio.Task[None]] = []
    jobs: list[Job] = []
    has_begun, goes_on = anyio.Event(), anyio.Event()

    async def leave_late(job: Job) -> None:
        async with job.transaction() as connection:
            await ledger.note(job, connection)
            has_begun.set()
            await goes_on.wait()
        raise AssertionError("unreachable")

    async def come_late(job: Job) -> None:
        await goes_on.wait()
        job.transaction()

    @app.handler("pay")
    async def pay(job: Job, payload: object) -> str:
        jobs.append(job)
        tasks.extend(asyncio.ensure_future(work(job)) for work in (leave_late, come_late))
        await has_begun.wait()
        return "without it"

    runtime = make_runtime(app, dsn)
    async with Client.connect(dsn, app) as client, working(runtime):
        enqueued = await client.enqueue("pay", {})
        job = await wait_state(client, enqueued.id, "succeeded")
        goes_on.set()
        with pytest.raises(ClaimLost):
            await tasks[0]
        with pytest.raises(InputError, match="has ended"):
            await tasks[1]
    assert job.result == "without it"
    assert await ledger.entries(job.id) == []
    assert counts(runtime, "pay") == {"succeeded": 1}


async def test_outside_a_handler_there_is_no_transaction() -> None:
    with pytest.raises(InputError, match="only in a handler"):
        make_job().transaction()


async def test_a_store_without_transactions_says_so() -> None:
    async def work(job: Job, payload: object) -> None:
        async with job.transaction():
            raise AssertionError("unreachable")

    outcome = await ExecutorBench(work).return_of(make_job())
    error = json.loads(outcome.error or "")
    assert (error["type"], "Postgres has" in error["message"]) == ("InputError", True)


async def test_the_end_of_a_fire_is_told_to_its_schedule(dsn: str, ledger: Ledger) -> None:
    app = Chronos()

    @app.handler("pay", max_attempts=1)
    async def pay(job: Job, payload: object) -> None:
        transaction = job.transaction()
        async with transaction as connection:
            await ledger.note(job, connection)
            transaction.end_with(ValueError("no money"))

    async with Client.connect(dsn, app) as client, working(make_runtime(app, dsn)):
        await client.schedules.add("rent", "pay", every_s=LATER_S)
        await client.schedules.run_now("rent")

        async def outcome() -> tuple[str, str | None] | None:
            rent = await client.schedules.get("rent")
            return (rent.last_outcome, rent.last_error) if rent.last_outcome else None

        assert await eventually(outcome, DEADLINE_S) == ("dead", "ValueError: no money")
