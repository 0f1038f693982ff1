"""Supervised attempts on a whole worker: the queue never tries again, the supervisor decides."""

import random
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import anyio
import pytest

from chronos_runtime import (
    Cancel,
    Chronos,
    Client,
    Discard,
    Escalate,
    Failure,
    GiveUp,
    Job,
    JobRecord,
    NewAttempt,
    PermanentFailure,
    Retry,
    Runtime,
    Snooze,
)
from chronos_runtime.errors import ConfigError
from chronos_runtime.lineage import fact_id
from chronos_runtime.store.migrations import Connection
from tests.actors.bench import sample
from tests.eventually import eventually
from tests.test_runtime import make_config, working

DEADLINE_S = 20.0
TASKS = 1_000
FAILS = 0.3
ATTEMPTS_MAX = 4

Attempt = tuple[UUID, int]


@pytest.fixture
def app() -> Chronos:
    """An application without handlers yet."""
    return Chronos()


@pytest.fixture
async def client(dsn: str, app: Chronos) -> AsyncIterator[Client]:
    """A client of the application."""
    async with Client.connect(dsn, app) as client:
        yield client


async def ended(client: Client, id: UUID) -> JobRecord:
    """The job, once it has ended."""

    async def look() -> JobRecord | None:
        job = await client.get(id)
        return job if job.finished_at is not None else None

    return await eventually(look, DEADLINE_S)


async def decided(client: Client, task: JobRecord) -> JobRecord:
    """The failure fact of a task, once its supervisor has decided."""
    return await ended(client, fact_id(task.id, task.attempt))


def fail_always(app: Chronos, kind: str = "mail", **options: Any) -> list[Attempt]:
    """A supervised handler that fails; what it ran."""
    runs: list[Attempt] = []

    @app.handler(kind, attempts="supervised", **options)
    async def fail(job: Job, payload: object) -> None:
        runs.append((job.id, job.lineage_no))
        raise ConnectionError("the provider is down")

    return runs


async def test_a_thousand_tasks_whose_provider_fails_three_in_ten(
    dsn: str, app: Chronos, client: Client, connection: Connection
) -> None:
    choice = random.Random(20_260_101)
    runs: Counter[Attempt] = Counter()
    seen: Counter[UUID] = Counter()
    given_up = 0

    @app.handler("mail", attempts="supervised", supervisor="post office")
    async def mail(job: Job, payload: int) -> int:
        runs[job.id, job.attempt] += 1
        if choice.random() < FAILS:
            raise ConnectionError("the provider is down")
        return payload

    @app.supervisor("post office")
    async def decide(failure: Failure) -> NewAttempt | GiveUp:
        nonlocal given_up
        seen[failure.id] += 1
        if failure.attempt < ATTEMPTS_MAX:
            return NewAttempt()
        given_up += 1
        return GiveUp("enough")

    runtime = Runtime(app, make_config(dsn))
    first = [one.id for one in await client.enqueue_many(client.job(mail, n) for n in range(TASKS))]
    async with working(runtime):

        async def is_over() -> bool:
            return await connection.fetchval("select not exists (select from chronos.jobs)")  # type: ignore[no-any-return]

        await eventually(is_over, 120.0)
    counted = {
        word: sample(
            runtime.metrics,
            "chronos_supervision_decisions_total",
            supervisor="post office",
            decision=word,
        )
        for word in ("new_attempt", "give_up", "escalate")
    }
    tasks = await connection.fetch("select * from chronos.job_history where kind = 'mail'")
    facts = await connection.fetch(
        "select * from chronos.job_history where kind = 'chronos.supervise.post office'"
    )
    failed = {row["id"] for row in tasks if row["state"] == "failed"}
    assert TASKS * 0.2 < len(failed) < TASKS * 0.6
    assert {row["state"] for row in tasks} == {"succeeded", "failed"}

    # Every failure is seen once, and told once.
    assert seen == Counter(failed)
    assert len(facts) == len(failed)
    assert {row["state"] for row in facts} == {"succeeded"}

    # The queue ran no task twice.
    assert set(runs.values()) == {1}
    assert {row["attempt"] for row in tasks} == {1}
    assert len(runs) == len(tasks)

    # Each attempt is linked to the one before it, in one line without gaps.
    by_id = {row["id"]: row for row in tasks}
    later = [row for row in tasks if row["retry_of"] is not None]
    assert {row["retry_of"] for row in later} <= failed
    assert len({row["retry_of"] for row in later}) == len(later), "one failure, one new attempt"
    for row in later:
        before = by_id[row["retry_of"]]
        assert row["lineage_no"] == (before["lineage_no"] or 1) + 1
        assert row["lineage_id"] == (before["lineage_id"] or before["id"])
        assert row["payload"] == before["payload"]

    # The totals add up.
    succeeded = len(tasks) - len(failed)
    assert {row["id"] for row in tasks if row["retry_of"] is None} == set(first)
    assert len(tasks) == TASKS + len(later)
    assert succeeded + given_up == TASKS
    assert len(failed) == len(later) + given_up
    assert counted == {"new_attempt": len(later), "give_up": given_up, "escalate": 0}


@pytest.mark.parametrize(
    ("decision", "state"),
    [(GiveUp("no such mailbox"), "failed"), (Escalate("ask Ada"), "dead")],
    ids=["give up", "escalate"],
)
async def test_what_the_supervisor_decides_is_done(
    dsn: str, app: Chronos, client: Client, decision: GiveUp | Escalate, state: str
) -> None:
    runs = fail_always(app)
    failures: list[Failure] = []

    @app.supervisor("mail")
    async def decide(failure: Failure) -> GiveUp | Escalate:
        failures.append(failure)
        return decision

    async with working(Runtime(app, make_config(dsn))):
        task = await ended(client, (await client.enqueue("mail", {"to": "ada"})).id)
        fact = await decided(client, task)
    assert fact.result == {"decision": "give_up" if state == "failed" else "escalate"} | {
        "reason": decision.reason
    }
    after = await client.get(task.id)
    assert (after.state, after.supervisor, len(runs)) == (state, "mail", 1)
    [failure] = failures
    assert (failure.id, failure.kind, failure.topic) == (task.id, "mail", "default")
    assert (failure.payload, failure.attempt, failure.run) == ({"to": "ada"}, 1, 1)
    assert (failure.error["type"], failure.error["message"]) == (
        "ConnectionError",
        "the provider is down",
    )
    assert (failure.lineage_id, failure.retry_of) == (task.id, None)
    assert (failure.enqueued_at, failure.finished_at) == (after.enqueued_at, after.finished_at)


async def test_a_new_attempt_may_wait_and_say_something_else(
    dsn: str, app: Chronos, client: Client
) -> None:
    fail_always(app)

    @app.supervisor("mail")
    async def decide(failure: Failure) -> NewAttempt:
        return NewAttempt(delay_s=3_600, payload={"to": "bob"})

    async with working(Runtime(app, make_config(dsn))):
        task = await ended(client, (await client.enqueue("mail", {"to": "ada"})).id)
        fact = await decided(client, task)
        first, second = await client.lineage(task.id)
    assert (first.id, second.retry_of, second.lineage_no) == (task.id, task.id, 2)
    assert (second.state, second.payload) == ("scheduled", {"to": "bob"})
    assert fact.result == {"decision": "new_attempt", "task": str(second.id), "delay_s": 3_600.0}


@pytest.mark.parametrize(
    ("end", "state"),
    [
        (Retry(after_s=0), "failed"),
        (Discard("no"), "failed"),
        (PermanentFailure("no", outcome="rejected"), "failed"),
        (Cancel("withdrawn"), "cancelled"),
        ("done", "succeeded"),
    ],
    ids=["retry", "discard", "permanent", "cancel", "result"],
)
async def test_how_a_supervised_attempt_ends(
    dsn: str, app: Chronos, client: Client, end: object, state: str
) -> None:
    @app.handler("mail", attempts="supervised", supervisor="")
    async def mail(job: Job, payload: object) -> object:
        if isinstance(end, Exception):
            raise end
        return end

    async with working(Runtime(app, make_config(dsn))):
        task = await ended(client, (await client.enqueue(mail)).id)
    assert (task.state, task.attempt) == (state, 1)


async def test_a_snooze_uses_no_attempt(dsn: str, app: Chronos, client: Client) -> None:
    runs: list[tuple[int, int]] = []

    @app.handler("mail", attempts="supervised", supervisor="")
    async def mail(job: Job, payload: object) -> Snooze | None:
        runs.append((job.attempt, job.lineage_no))
        return Snooze(0) if len(runs) == 1 else None

    async with working(Runtime(app, make_config(dsn))):
        task = await ended(client, (await client.enqueue(mail)).id)
    assert (task.state, runs) == ("succeeded", [(1, 1), (1, 1)])


async def test_a_timeout_is_a_failed_attempt(dsn: str, app: Chronos, client: Client) -> None:
    @app.handler("mail", attempts="supervised", supervisor="", timeout_s=0.05)
    async def mail(job: Job, payload: object) -> None:
        await anyio.sleep_forever()

    async with working(Runtime(app, make_config(dsn))):
        task = await ended(client, (await client.enqueue(mail)).id)
    assert (task.state, task.errors[-1]["type"]) == ("failed", "TimeoutError")


async def test_a_shutdown_is_no_failure(dsn: str, app: Chronos, client: Client) -> None:
    started = anyio.Event()

    @app.handler("mail", attempts="supervised")
    async def mail(job: Job, payload: object) -> None:
        started.set()
        await anyio.sleep_forever()

    enqueued = await client.enqueue(mail)
    async with working(Runtime(app, make_config(dsn, executor={"drain_s": 0}))):
        await started.wait()
    task = await client.get(enqueued.id)
    assert (task.state, task.attempt, task.lineage_no) == ("ready", 1, None)
    assert len((await client.list()).jobs) == 1, "nothing to tell a supervisor"


@pytest.mark.parametrize(
    "case",
    [
        (None, "decided None; return NewAttempt, GiveUp or Escalate"),
        ("again", "decided 'again'; return NewAttempt"),
        (NewAttempt(delay_s=-1), "NewAttempt.delay_s: -1 is not a number of seconds"),
        (NewAttempt(payload=float("nan")), "has no JSON form"),
    ],
)
async def test_a_supervisor_that_makes_no_sense_is_asked_again(
    dsn: str, app: Chronos, client: Client, connection: Connection, case: tuple[Any, str]
) -> None:
    nonsense, message = case
    fail_always(app)
    answers = [nonsense, GiveUp("enough")]

    @app.supervisor("mail")
    async def decide(failure: Failure) -> Any:
        return answers.pop(0)

    async with working(Runtime(app, make_config(dsn))):
        task = await ended(client, (await client.enqueue("mail")).id)
        await retried_at_once(connection, fact_id(task.id, 1))
        fact = await decided(client, task)
    assert (fact.attempt, len(fact.errors)) == (2, 1)
    assert message in str(fact.errors[0]["message"])
    assert len(await client.lineage(task.id)) == 1, "nothing was done by halves"


async def retried_at_once(connection: Connection, id: UUID) -> None:
    """Wait until a job waits for its backoff, and end the wait."""

    async def is_due() -> bool:
        done = await connection.execute(
            "update chronos.jobs set run_at = now() where id = $1 and state = 'scheduled'", id
        )
        return done == "UPDATE 1"

    await eventually(is_due, DEADLINE_S)


async def test_a_supervisor_that_raises_is_asked_again(
    dsn: str, app: Chronos, client: Client, connection: Connection
) -> None:
    fail_always(app)
    asked: list[UUID] = []

    @app.supervisor("mail")
    async def decide(failure: Failure) -> NewAttempt:
        asked.append(failure.id)
        if len(asked) == 1:
            raise RuntimeError("boom")
        return NewAttempt(delay_s=3_600)

    async with working(Runtime(app, make_config(dsn))):
        task = await ended(client, (await client.enqueue("mail")).id)
        await retried_at_once(connection, fact_id(task.id, 1))
        await decided(client, task)
    assert asked == [task.id, task.id]
    assert len(await client.lineage(task.id)) == 2


async def test_a_payload_the_handler_cannot_read_is_no_decision(
    dsn: str, app: Chronos, client: Client, connection: Connection
) -> None:
    @app.handler("count", attempts="supervised")
    async def count(job: Job, payload: int) -> None:
        raise ConnectionError("no")

    answers = [NewAttempt(payload="seven"), NewAttempt(payload=7, delay_s=3_600)]

    @app.supervisor("count")
    async def decide(failure: Failure) -> NewAttempt:
        return answers.pop(0)

    async with working(Runtime(app, make_config(dsn))):
        task = await ended(client, (await client.enqueue(count, 1)).id)
        await retried_at_once(connection, fact_id(task.id, 1))
        fact = await decided(client, task)
    assert fact.errors[0]["type"] == "PayloadError"
    assert [one.payload for one in await client.lineage(task.id)] == [1, 7]


async def test_a_process_leaves_facts_to_one_that_knows_the_supervisor(
    dsn: str, app: Chronos, client: Client
) -> None:
    fail_always(app)
    async with working(Runtime(app, make_config(dsn))):
        task = await ended(client, (await client.enqueue("mail")).id)
    fact = await client.get(fact_id(task.id, 1))
    assert (fact.state, fact.attempt) == ("ready", 0)
    knowing = Chronos()

    @knowing.supervisor("mail")
    async def decide(failure: Failure) -> GiveUp:
        return GiveUp()

    async with working(Runtime(knowing, make_config(dsn))):
        assert (await decided(client, task)).state == "succeeded"


@pytest.mark.parametrize(
    "change",
    [
        "delete from chronos.job_history where id = $1",
        "update chronos.job_history set state = 'dead' where id = $1",
    ],
    ids=["gone", "dead"],
)
async def test_a_fact_whose_task_is_not_failed_any_more_is_let_go(
    dsn: str, app: Chronos, client: Client, connection: Connection, change: str
) -> None:
    fail_always(app)
    async with working(Runtime(app, make_config(dsn))):
        task = await ended(client, (await client.enqueue("mail")).id)
    await connection.execute(change, task.id)

    @app.supervisor("mail")
    async def decide(failure: Failure) -> GiveUp:
        raise AssertionError("there is nothing to decide")

    async with working(Runtime(app, make_config(dsn))):
        assert (await decided(client, task)).state == "cancelled"


SQL_SUPERVISOR = """
create schema shop;
create table shop.decided (task uuid, attempt integer, primary key (task, attempt));
create function shop.decide(failure jsonb) returns jsonb language plpgsql as $$
begin
    insert into shop.decided
    select (failure -> 'task' ->> 'id')::uuid, (failure -> 'task' ->> 'attempt')::integer;
    if (failure -> 'task' ->> 'attempt')::integer < 3 then
        return '{"status": "succeeded", "payload": {"decision": "new_attempt"}}';
    end if;
    return jsonb_build_object('status', 'succeeded', 'payload', jsonb_build_object(
        'decision', 'escalate', 'reason', failure -> 'error' ->> 'message'
    ));
end
$$;
insert into chronos.allowed_functions (schema_name, function_name) values ('shop', 'decide');
"""


async def test_a_sql_function_decides(
    dsn: str, app: Chronos, client: Client, connection: Connection
) -> None:
    await connection.execute(SQL_SUPERVISOR)
    runs = fail_always(app)
    config = make_config(dsn, supervisors={"mail": "shop.decide"})
    async with working(Runtime(app, config)):
        first = (await client.enqueue("mail")).id

        async def is_escalated() -> bool:
            return (await client.lineage(first))[-1].state == "dead"

        await eventually(is_escalated, DEADLINE_S)
        last = (await client.lineage(first))[-1]
        fact = await decided(client, last)
    assert [number for _, number in runs] == [1, 2, 3]
    assert fact.result == {"decision": "escalate", "reason": "the provider is down"}
    decided_on = await connection.fetch("select task, attempt from shop.decided order by attempt")
    assert [tuple(row) for row in decided_on] == runs


async def test_a_sql_function_that_decides_nonsense_leaves_nothing(
    dsn: str, app: Chronos, client: Client, connection: Connection
) -> None:
    await connection.execute(SQL_SUPERVISOR.replace("new_attempt", "retry"))
    fail_always(app)
    config = make_config(dsn, supervisors={"mail": "shop.decide"})
    async with working(Runtime(app, config)):
        task = await ended(client, (await client.enqueue("mail")).id)

        async def has_failed() -> JobRecord | None:
            fact = await client.get(fact_id(task.id, 1))
            return fact if fact.errors else None

        fact = await eventually(has_failed, DEADLINE_S)
    assert "decided nothing we know" in str(fact.errors[-1]["message"])
    assert await connection.fetchval("select count(*) from shop.decided") == 0


def test_a_name_has_one_supervisor(app: Chronos, dsn: str) -> None:
    fail_always(app)

    @app.supervisor("mail")
    async def decide(failure: Failure) -> GiveUp:
        return GiveUp()

    with pytest.raises(ConfigError, match=r"supervisors.mail: the app has one"):
        Runtime(app, make_config(dsn, supervisors={"mail": "shop.decide"}))
