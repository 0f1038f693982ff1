"""Processors with SQL around them: every run leaves exactly one fact, with the end of its task."""

from collections.abc import AsyncIterator, Callable
from typing import Any
from uuid import UUID

import anyio
import msgspec
import pytest

from chronos_runtime import (
    Cancel,
    Chronos,
    Client,
    Discard,
    InputError,
    JobRecord,
    PayloadError,
    PermanentFailure,
    Retry,
    Runtime,
    Snooze,
    Task,
    TemporaryFailure,
)
from chronos_runtime.backoff import Fixed
from chronos_runtime.store.migrations import Connection
from tests.actors.bench import sample
from tests.eventually import eventually
from tests.processors.shop import facts, make_function, make_shop
from tests.test_runtime import DEADLINE_S, ended, make_config, working


class Push(msgspec.Struct):
    to: str
    text: str = ""


Send = Callable[[Task, Push], Any]
HOOKS = {
    "before_handler": "shop.before",
    "success_handler": "shop.success",
    "error_handler": "shop.failure",
}
MESSAGE = """jsonb_build_object('status', 'succeeded', 'payload',
    jsonb_build_object('to', told -> 'payload' ->> 'user', 'text', 'from sql'))"""


class Provider:
    """A processor that does what the test says, and remembers what it was asked to send."""

    def __init__(self) -> None:
        self.sent: list[tuple[Task, Push]] = []
        self.answer: Send = lambda task, message: {"id": "p-1"}

    async def __call__(self, task: Task, message: Push) -> object:
        self.sent.append((task, message))
        answer = self.answer(task, message)
        return await answer if hasattr(answer, "__await__") else answer


@pytest.fixture
async def shop(connection: Connection) -> Connection:
    """A connection to a database with all three functions in it."""
    await make_shop(connection)
    await make_function(connection, "before", MESSAGE)
    await make_function(connection, "success")
    await make_function(connection, "failure")
    return connection


@pytest.fixture
def provider() -> Provider:
    """What sends."""
    return Provider()


@pytest.fixture
def app(provider: Provider) -> Chronos:
    """An app with one processor, which tries three times without a pause."""
    app = Chronos()
    app.processor("push", max_attempts=3, backoff=Fixed(0.0))(provider)
    return app


@pytest.fixture
async def client(dsn: str, app: Chronos) -> AsyncIterator[Client]:
    """A client of the app."""
    async with Client.connect(dsn, app) as client:
        yield client


class Office(msgspec.Struct):
    """A database with functions, an app with a processor, and a client of both."""

    dsn: str
    shop: Connection
    client: Client
    app: Chronos
    provider: Provider

    async def push(self, payload: object, **options: Any) -> JobRecord:
        """Enqueue one task, run it to its end, and see what became of it."""
        async with working(Runtime(self.app, make_config(self.dsn))):
            job = await self.client.enqueue("push", payload, **options)
            return await ended(self.client, job.id)


@pytest.fixture
def office(dsn: str, shop: Connection, client: Client, app: Chronos, provider: Provider) -> Office:
    """All of it."""
    return Office(dsn, shop, client, app, provider)


def trouble(record: JobRecord) -> str:
    return str(record.errors[-1]["message"])


def fail(error: BaseException) -> Send:
    def send(task: Task, message: Push) -> None:
        raise error

    return send


async def test_without_functions_the_payload_is_the_message_and_the_answer_the_result(
    office: Office,
) -> None:
    record = await office.push({"to": "ada", "text": "hello"})
    assert (record.state, record.result) == ("succeeded", {"id": "p-1"})
    [(task, message)] = office.provider.sent
    assert message == Push("ada", "hello")
    assert (task.id, task.kind, task.attempt, task.run) == (record.id, "push", 1, 1)
    assert (task.retry_of, task.lineage_id) == (None, record.id)


async def test_a_processor_is_found_by_itself_and_its_message_is_checked_at_enqueue(
    client: Client, provider: Provider
) -> None:
    assert client.job(provider, {"to": "ada"}).kind == "push"
    with pytest.raises(PayloadError, match="payload of 'push': Object missing required field `to`"):
        client.job(provider, {"too": "ada"})
    with pytest.raises(PayloadError, match="payload of 'push': must be a JSON object"):
        client.job("push", ["ada"])
    with pytest.raises(PayloadError, match="payload of 'push': error_handler: 'note' is no schema"):
        client.job("push", {"to": "ada", "error_handler": "note"})
    assert client.job("push", {"before_handler": "shop.before"}).kind == "push"


def test_what_is_no_processor_is_refused() -> None:
    def plain(task: Task, message: Push) -> None: ...

    async def one(task: Task) -> None: ...

    with pytest.raises(InputError, match="must be an `async def` function"):
        Chronos().processor("push")(plain)  # type: ignore[type-var]
    with pytest.raises(InputError, match=r"\(a processor: `task` and `message`\)"):
        Chronos().processor("push")(one)  # type: ignore[type-var]
    with pytest.raises(InputError, match="as only our own do"):
        Chronos().processor("chronos.push")


async def test_before_makes_the_message_and_success_records_the_answer(office: Office) -> None:
    payload = {"user": "ada", "order": 7, **HOOKS}
    record = await office.push(payload)
    assert (record.state, record.result) == ("succeeded", {"id": "p-1"})
    [(_, message)] = office.provider.sent
    assert message == Push("ada", "from sql")
    before, success = await facts(office.shop, record.id)
    task = {
        "id": str(record.id),
        "kind": "push",
        "topic": "default",
        "attempt": 1,
        "run": 1,
        "max_attempts": 3,
        "retry_of": None,
        "lineage_id": str(record.id),
    }
    assert (before.name, before.told) == ("before", {"task": task, "payload": payload})
    assert (success.name, success.told) == (
        "success",
        {
            "task": task,
            "payload": payload,
            "message": {"to": "ada", "text": "from sql"},
            "answer": {"id": "p-1"},
        },
    )


async def test_a_temporary_failure_leaves_a_fact_for_each_attempt(office: Office) -> None:
    def flaky(task: Task, message: Push) -> str:
        if task.attempt < 3:
            raise TemporaryFailure("busy", outcome="throttled", after_s=0)
        return "sent"

    office.provider.answer = flaky
    record = await office.push({"user": "ada", **HOOKS})
    assert (record.state, record.result, record.attempt) == ("succeeded", "sent", 3)
    noted = [fact for fact in await facts(office.shop, record.id) if fact.name != "before"]
    assert [(fact.name, fact.told["task"]["attempt"]) for fact in noted] == [
        ("failure", 1),
        ("failure", 2),
        ("success", 3),
    ]
    assert noted[0].told["error"] == {
        "type": "TemporaryFailure",
        "message": "busy",
        "outcome": "throttled",
        "is_permanent": False,
        "stage": "processor",
    }


@pytest.mark.parametrize(
    ("answer", "state", "told"),
    [
        (
            fail(PermanentFailure("no such user", outcome="rejected")),
            "dead",
            ("PermanentFailure", "no such user", "rejected", True),
        ),
        (fail(ValueError("broken")), "dead", ("ValueError", "broken", "failed", False)),
        (fail(SystemExit(3)), "dead", ("SystemExit", "3", "failed", False)),
        (
            lambda task, message: Discard("gone"),
            "dead",
            ("Discard", "gone", "discarded", True),
        ),
        (
            lambda task, message: Cancel("withdrawn"),
            "cancelled",
            ("Cancel", "withdrawn", "cancelled", True),
        ),
        (
            lambda task, message: Retry(0.0, "again"),
            "dead",
            ("Retry", "again", "retried", False),
        ),
        (
            lambda task, message: anyio.sleep_forever(),
            "dead",
            ("TimeoutError", "stopped after 0.05 s", "timeout", False),
        ),
    ],
    ids=["permanent", "error", "exit", "discard", "cancel", "retry", "timeout"],
)
async def test_however_a_processor_fails_there_is_one_fact_and_the_end_it_should_have(
    office: Office,
    answer: Send,
    state: str,
    told: tuple[str, str, str, bool],
) -> None:
    office.provider.answer = answer
    payload = {"to": "ada", "error_handler": "shop.failure"}
    record = await office.push(payload, max_attempts=1, timeout_s=0.05)
    assert (record.state, trouble(record)) == (state, told[1])
    [fact] = await facts(office.shop, record.id)
    error = fact.told["error"]
    assert (error["type"], error["message"], error["outcome"], error["is_permanent"]) == told
    assert fact.told["message"] == {"to": "ada"}
    assert len(office.provider.sent) == 1


async def test_the_timeout_is_for_the_processor_alone(office: Office) -> None:
    """Functions have their own; a stop half-way would leave a run without its fact."""
    await make_function(office.shop, "slow_before", MESSAGE, body="perform pg_sleep(0.4);")
    await make_function(office.shop, "slow_success", body="perform pg_sleep(0.4);")
    payload = {
        "user": "ada",
        "before_handler": "shop.slow_before",
        "success_handler": "shop.slow_success",
    }
    record = await office.push(payload, max_attempts=1, timeout_s=0.1)
    assert (record.state, record.errors) == ("succeeded", [])
    assert [fact.name for fact in await facts(office.shop)] == ["slow_before", "slow_success"]


async def test_a_snooze_leaves_no_fact_and_costs_no_attempt(office: Office) -> None:
    office.provider.answer = lambda task, message: (
        Snooze(0.0) if len(office.provider.sent) < 3 else "sent"
    )
    record = await office.push({"to": "ada", **HOOKS, "before_handler": None})
    assert (record.state, record.attempt, len(office.provider.sent)) == ("succeeded", 1, 3)
    assert [fact.name for fact in await facts(office.shop)] == ["success"]


async def test_a_job_that_is_permanently_failed_is_not_sent_again(office: Office) -> None:
    office.provider.answer = fail(PermanentFailure("no such user"))
    record = await office.push({"to": "ada"})
    assert (record.state, record.attempt, len(office.provider.sent)) == ("dead", 1, 1)


@pytest.mark.parametrize(
    ("returned", "body", "what"),
    [
        ("""'{"status": "no_consent"}'::jsonb""", "", "shop.ask: no_consent"),
        ("'{}'::jsonb", "", "shop.ask returned no envelope"),
        ("null::jsonb", "raise exception 'no';", "shop.ask: RaiseError: no (SQLSTATE P0001)"),
        (
            """'{"status": "succeeded", "payload": {"too": 1}}'::jsonb""",
            "",
            "message of 'push': Object missing required field `to`",
        ),
    ],
    ids=["unsuccessful", "malformed", "broken", "unfit"],
)
async def test_a_before_handler_that_fails_sends_nothing_and_leaves_one_fact(
    office: Office,
    returned: str,
    body: str,
    what: str,
) -> None:
    await make_function(office.shop, "ask", returned, body=body)
    payload = {"before_handler": "shop.ask", "error_handler": "shop.failure"}
    record = await office.push(payload, max_attempts=1)
    assert record.state == "dead"
    assert trouble(record).startswith(what)
    assert office.provider.sent == []
    [fact] = [one for one in await facts(office.shop) if one.name == "failure"]
    assert fact.told["error"]["message"].startswith(what)
    assert fact.told["error"]["stage"] == ("message" if "message" in what else "before_handler")


async def test_a_message_in_a_row_that_does_not_fit_is_told_to_the_error_handler(
    office: Office,
) -> None:
    async with (
        Client.connect(office.dsn) as careless,
        working(Runtime(office.app, make_config(office.dsn))),
    ):
        payload = {"too": "ada", "error_handler": "shop.failure"}
        job = await careless.enqueue("push", payload, max_attempts=1)
        record = await ended(office.client, job.id)
    assert record.state == "dead"
    [fact] = await facts(office.shop)
    assert (fact.told["error"]["stage"], fact.told["error"]["outcome"]) == ("message", "invalid")
    assert office.provider.sent == []


@pytest.mark.parametrize(
    ("returned", "body", "what"),
    [
        ("""'{"status": "full"}'::jsonb""", "", "shop.ask: full"),
        ("'{}'::jsonb", "", "shop.ask returned no envelope"),
        ("null::jsonb", "raise exception 'no';", "shop.ask: RaiseError: no (SQLSTATE P0001)"),
    ],
    ids=["unsuccessful", "malformed", "broken"],
)
async def test_what_was_sent_and_cannot_be_recorded_is_dead_and_never_sent_again(
    office: Office,
    returned: str,
    body: str,
    what: str,
) -> None:
    await make_function(office.shop, "ask", returned, body=body)
    payload = {"to": "ada", "success_handler": "shop.ask", "error_handler": "shop.failure"}
    runtime = Runtime(office.app, make_config(office.dsn))
    async with working(runtime):
        job = await office.client.enqueue("push", payload)
        record = await ended(office.client, job.id)
    assert (record.state, record.attempt, len(office.provider.sent)) == ("dead", 1, 1)
    assert trouble(record).startswith(f"done, but not recorded: {what}")
    [fact] = await facts(office.shop)  # What success_handler wrote is taken back.
    assert fact.name == "failure"
    assert fact.told["answer"] == {"id": "p-1"}
    error = fact.told["error"]
    assert (error["stage"], error["is_permanent"]) == ("success_handler", True)
    runs = {"processor": "push", "outcome": "unrecorded"}
    assert sample(runtime.metrics, "chronos_processor_runs_total", **runs) == 1


async def test_the_same_without_an_error_handler(office: Office) -> None:
    payload = {"to": "ada", "success_handler": "shop.missing"}
    record = await office.push(payload)
    assert (record.state, len(office.provider.sent)) == ("dead", 1)
    assert trouble(record).startswith("done, but not recorded: shop.missing: tasks may not call it")
    assert await facts(office.shop) == []


@pytest.mark.parametrize(
    ("answer", "attempts", "first"),
    [
        (fail(ValueError("broken")), 3, "ValueError: broken"),
        (fail(PermanentFailure("no user")), 1, "PermanentFailure: no user"),
        (lambda task, message: Discard("gone"), 1, "gone"),
        (lambda task, message: Retry(0.0, "again"), 3, "again"),
    ],
    ids=["temporary", "permanent", "discard", "retry"],
)
async def test_a_failure_is_written_though_its_error_handler_fails_and_names_both(
    office: Office,
    answer: Send,
    attempts: int,
    first: str,
) -> None:
    await make_function(office.shop, "ask", "'{}'::jsonb")
    office.provider.answer = answer
    record = await office.push({"to": "ada", "error_handler": "shop.ask"})
    assert (record.state, record.attempt) == ("dead", attempts)
    assert trouble(record).startswith(
        f"{first}; and error_handler failed: shop.ask returned no envelope"
    )
    assert len(record.errors) == attempts
    assert await facts(office.shop) == []


async def test_a_fault_that_passes_is_waited_out_and_nothing_is_sent_twice(office: Office) -> None:
    await office.shop.execute("create sequence shop.tries")
    await make_function(
        office.shop,
        "ask",
        body="if nextval('shop.tries') < 4 then"
        " raise exception 'not now' using errcode = 'serialization_failure'; end if;",
    )
    record = await office.push({"to": "ada", "success_handler": "shop.ask"})
    assert (record.state, record.attempt, len(office.provider.sent)) == ("succeeded", 1, 1)
    assert [fact.name for fact in await facts(office.shop)] == ["ask"]
    assert await office.shop.fetchval("select last_value from shop.tries") == 4


@pytest.mark.parametrize("moment", ["call", "commit"])
async def test_a_connection_that_is_cut_while_recording_is_waited_out_too(
    office: Office, moment: str
) -> None:
    """At a commit nobody knows at first whether it was applied."""
    kill = """if nextval('shop.tries') < 3 then
        perform pg_terminate_backend(pg_backend_pid()), pg_sleep(1); end if;"""
    await office.shop.execute("create sequence shop.tries")
    await office.shop.execute(
        "create function shop.kill() returns trigger language plpgsql as"
        f" $$ begin {kill} return null; end $$"
    )
    if moment == "commit":
        await office.shop.execute(
            "create constraint trigger kill after insert on shop.facts deferrable initially"
            " deferred for each row execute function shop.kill()"
        )
    await make_function(office.shop, "ask", body=kill if moment == "call" else "")
    record = await office.push({"to": "ada", "success_handler": "shop.ask"})
    assert (record.state, record.attempt, record.errors) == ("succeeded", 1, [])
    assert [fact.name for fact in await facts(office.shop)] == ["ask"]
    assert await office.shop.fetchval("select last_value from shop.tries") == 3


async def test_a_function_that_is_always_too_slow_is_given_up_after_three_times(
    office: Office,
) -> None:
    await office.shop.execute("create sequence shop.tries")
    await make_function(
        office.shop, "ask", body="perform nextval('shop.tries'), pg_sleep(60);", timeout_s=0.05
    )
    payload = {"to": "ada", "success_handler": "shop.ask", "error_handler": "shop.failure"}
    record = await office.push(payload)
    assert (record.state, len(office.provider.sent)) == ("dead", 1)
    assert await office.shop.fetchval("select last_value from shop.tries") == 3
    [fact] = await facts(office.shop)
    assert (fact.name, fact.told["error"]["outcome"]) == ("failure", "unrecorded")


async def test_a_stop_waits_until_what_was_sent_is_recorded(office: Office) -> None:
    await office.shop.execute("create table shop.gate as select false as open")
    await make_function(
        office.shop,
        "ask",
        body="if not (select open from shop.gate) then"
        " raise exception 'not now' using errcode = 'serialization_failure'; end if;",
    )
    config = make_config(office.dsn, executor={"drain_s": 0})
    async with working(Runtime(office.app, config)) as stop:
        job = await office.client.enqueue("push", {"to": "ada", "success_handler": "shop.ask"})
        await eventually(lambda: office.provider.sent, DEADLINE_S)
        stop.set()
        await anyio.wait_all_tasks_blocked()
        await office.shop.execute("update shop.gate set open = true")
    record = await office.client.get(job.id)
    assert (record.state, len(office.provider.sent)) == ("succeeded", 1)
    assert [fact.name for fact in await facts(office.shop)] == ["ask"]


async def test_a_lost_claim_takes_the_fact_back_and_the_next_run_leaves_it(office: Office) -> None:
    async def lose(task: Task, message: Push) -> str:
        if task.attempt == 1:  # As if the lease had lapsed and another had taken it over.
            await office.shop.execute(
                "update chronos.jobs set state = 'ready', lease_token = null, lease_until = null"
                " where id = $1",
                task.id,
            )
        return "sent"

    office.provider.answer = lose
    record = await office.push({"to": "ada", "success_handler": "shop.success"})
    assert (record.state, record.attempt) == ("succeeded", 2)
    assert [fact.told["task"]["attempt"] for fact in await facts(office.shop)] == [2]


async def test_hooks_run_as_their_role_and_the_job_ends_as_ours(office: Office) -> None:
    role = f"clerk_{office.shop.get_server_pid()}"
    await office.shop.execute(f"create role {role}")
    try:
        await office.shop.execute("update chronos.allowed_functions set role = $1", role)
        record = await office.push({"user": "ada", **HOOKS})
        assert record.state == "succeeded"
        assert [fact.role for fact in await facts(office.shop)] == [role, role]
    finally:
        await office.shop.execute(f"drop owned by {role}; drop role {role}")


async def test_what_postgres_cannot_hold_does_not_keep_a_fact_from_being_recorded(
    office: Office,
) -> None:
    office.provider.answer = lambda task, message: {"text": "a\x00b\ud800"}
    payload = {"to": "ada", "success_handler": "shop.success", "error_handler": "shop.failure"}
    record = await office.push(payload)
    assert record.state == "succeeded"
    office.provider.answer = fail(ValueError("a\x00b\ud800"))
    record = await office.push(payload, max_attempts=1)
    assert record.state == "dead"
    assert [fact.name for fact in await facts(office.shop)] == ["success", "failure"]


async def test_a_number_of_the_payload_arrives_as_it_was_written(office: Office) -> None:
    exact = "123456789012345678901234567890.12345678901234567890"
    payload = msgspec.Raw(
        b'{"user": "ada", "cents": %s, "before_handler": "shop.before"}' % exact.encode()
    )
    assert (await office.push(payload)).state == "succeeded"
    assert await office.shop.fetchval("select told #>> '{payload,cents}' from shop.facts") == exact


async def test_a_processor_function_is_registered_by_decorator(dsn: str, shop: Connection) -> None:
    app = Chronos()
    seen: list[UUID] = []

    @app.processor("note", topic="notes", timeout_s=5)
    async def note(task: Task, message: dict[str, str]) -> str:
        seen.append(task.id)
        return message["text"]

    async with Client.connect(dsn, app) as client, working(Runtime(app, make_config(dsn))):
        job = await client.enqueue(note, {"text": "hello"})
        record = await ended(client, job.id)
    assert (record.state, record.topic, record.result) == ("succeeded", "notes", "hello")
    assert seen == [job.id]
