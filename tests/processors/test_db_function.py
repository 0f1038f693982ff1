"""`chronos.db_function`: what a SQL function writes and the end of its task, together or not."""

from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import asyncpg
import msgspec
import pytest

from chronos_runtime import Chronos, Client, JobRecord, PayloadError, Runtime
from chronos_runtime.store.migrations import Connection
from tests.actors.bench import sample
from tests.eventually import eventually
from tests.processors.shop import SUCCEEDED, facts, make_function, make_shop
from tests.test_runtime import DEADLINE_S, ended, make_config, working

KIND = "chronos.db_function"


@pytest.fixture
async def shop(connection: Connection) -> Connection:
    """A connection to a database with business logic in it."""
    await make_shop(connection)
    return connection


@pytest.fixture
async def client(dsn: str) -> AsyncIterator[Client]:
    """A client without an app: nothing of this needs one."""
    async with Client.connect(dsn) as client:
        yield client


async def call(
    dsn: str, client: Client, function: str, arguments: object = None, **options: Any
) -> JobRecord:
    """Enqueue a call, run it to its end, and see what became of it."""
    options = {"max_attempts": 1} | options
    payload = {"function": function, "arguments": {} if arguments is None else arguments}
    async with working(Runtime(Chronos(), make_config(dsn))):
        job = await client.enqueue(KIND, payload, **options)
        return await ended(client, job.id)


def trouble(record: JobRecord) -> str:
    """Why the last attempt failed."""
    return str(record.errors[-1]["message"])


async def test_a_function_is_called_with_its_arguments_and_its_payload_is_the_result(
    dsn: str, shop: Connection, client: Client
) -> None:
    await make_function(shop, "keep")
    record = await call(dsn, client, "shop.keep", {"order": 7, "cents": [1, 2]})
    assert (record.state, record.result, record.attempt) == ("succeeded", {"kept": True}, 1)
    [fact] = await facts(shop)
    assert (fact.name, fact.told) == ("keep", {"order": 7, "cents": [1, 2]})
    assert fact.task["id"] == str(record.id)
    assert (fact.task["attempt"], fact.task["kind"]) == (1, KIND)


async def test_numbers_arrive_as_they_were_enqueued(
    dsn: str, shop: Connection, client: Client
) -> None:
    await make_function(shop, "keep")
    exact = "123456789012345678901234567890.12345678901234567890"
    arguments = msgspec.Raw(b'{"cents": %s}' % exact.encode())
    await call(dsn, client, "shop.keep", arguments)
    assert await shop.fetchval("select told ->> 'cents' from shop.facts") == exact


async def test_a_status_that_is_no_success_keeps_the_facts_and_fails_the_attempt(
    dsn: str, shop: Connection, client: Client
) -> None:
    await make_function(shop, "pay", """'{"status": "declined", "reason": "no funds"}'::jsonb""")
    record = await call(dsn, client, "shop.pay")
    assert (record.state, trouble(record)) == ("dead", "shop.pay: declined: no funds")
    assert [fact.name for fact in await facts(shop)] == ["pay"]


async def test_such_an_attempt_is_tried_again_and_each_leaves_its_fact(
    dsn: str, shop: Connection, client: Client
) -> None:
    declined = """'{"status": "declined", "reason": "no funds"}'::jsonb"""
    await make_function(
        shop,
        "pay",
        f"case when (current_setting('chronos.task')::jsonb ->> 'attempt')::int < 2"
        f" then {declined} else {SUCCEEDED} end",
    )
    async with working(Runtime(Chronos(), make_config(dsn))):
        job = await client.enqueue(KIND, {"function": "shop.pay"})
        await eventually(lambda: is_scheduled(client, job.id), DEADLINE_S)
        await shop.execute("update chronos.jobs set run_at = now() - interval '1 s'")
        record = await ended(client, job.id)
    assert (record.state, record.attempt, trouble(record)) == (
        "succeeded",
        2,
        "shop.pay: declined: no funds",
    )
    assert [fact.task["attempt"] for fact in await facts(shop)] == [1, 2]


async def is_scheduled(client: Client, id: UUID) -> bool:
    return (await client.get(id)).state == "scheduled"


async def test_a_failure_that_is_permanent_is_not_tried_again(
    dsn: str, shop: Connection, client: Client
) -> None:
    await make_function(shop, "pay", """'{"status": "fraud", "is_permanent": true}'::jsonb""")
    record = await call(dsn, client, "shop.pay", max_attempts=5)
    assert (record.state, record.attempt, trouble(record)) == ("dead", 1, "shop.pay: fraud")
    assert len(await facts(shop)) == 1


@pytest.mark.parametrize(
    ("returned", "what"),
    [
        ("null::jsonb", "Expected `object`, got `null`"),
        ("'{}'::jsonb", "Object missing required field `status`"),
        ("'[]'::jsonb", "Expected `object`, got `array`"),
        ("'\"succeeded\"'::jsonb", "Expected `object`, got `str`"),
        ("""'{"status": ""}'::jsonb""", "Expected `str` of length >= 1"),
        ("""'{"status": 1}'::jsonb""", "Expected `str`, got `int`"),
        ("""'{"status": "succeeded", "payload": 3}'::jsonb""", "Expected `object | null`"),
        ("""'{"status": "no", "reason": {}}'::jsonb""", "Expected `str | null`"),
        ("""'{"status": "no", "is_permanent": "yes"}'::jsonb""", "Expected `bool`, got `str`"),
    ],
)
async def test_what_is_no_envelope_takes_the_writes_back(
    dsn: str, shop: Connection, client: Client, returned: str, what: str
) -> None:
    await make_function(shop, "keep", returned)
    record = await call(dsn, client, "shop.keep")
    assert record.state == "dead"
    assert trouble(record).startswith(f"shop.keep returned no envelope: {what}")
    assert trouble(record).endswith("""return {"status": "succeeded", "payload": {…}}""")
    assert await facts(shop) == []


async def test_a_function_that_breaks_takes_its_writes_back_and_no_row_is_quoted(
    dsn: str, shop: Connection, client: Client
) -> None:
    await shop.execute("create table shop.mails (mail text unique)")
    await make_function(
        shop,
        "keep",
        body="insert into shop.mails values ('ada@example.org'), ('ada@example.org');",
    )
    record = await call(dsn, client, "shop.keep")
    assert record.state == "dead"
    assert trouble(record) == (
        "shop.keep: UniqueViolationError: duplicate key value violates unique constraint"
        ' "mails_mail_key" (SQLSTATE 23505)'
    )
    assert await facts(shop) == []
    assert "ada@" not in str(record.errors)


async def test_a_function_that_takes_too_long_is_stopped(
    dsn: str, shop: Connection, client: Client
) -> None:
    await make_function(shop, "keep", body="perform pg_sleep(60);", timeout_s=0.1)
    record = await call(dsn, client, "shop.keep")
    assert trouble(record) == (
        "shop.keep: canceling statement due to statement timeout; it may take 0.1 s"
    )
    assert await facts(shop) == []


async def test_the_configured_timeout_goes_for_functions_without_one(
    dsn: str, shop: Connection, client: Client
) -> None:
    await make_function(shop, "keep", body="perform pg_sleep(60);")
    config = make_config(dsn, functions={"timeout_s": 0.1})
    async with working(Runtime(Chronos(), config)):
        job = await client.enqueue(KIND, {"function": "shop.keep"}, max_attempts=1)
        assert "statement timeout" in trouble(await ended(client, job.id))


async def test_a_function_runs_as_its_role_and_the_job_ends_as_ours(
    dsn: str, shop: Connection, client: Client
) -> None:
    role = f"clerk_{UUID(int=0).hex[:4]}_{shop.get_server_pid()}"
    await shop.execute(f"create role {role}")
    try:
        await make_function(shop, "keep", role=role)
        await make_function(shop, "peek", body="perform count(*) from chronos.jobs;", role=role)
        kept = await call(dsn, client, "shop.keep")
        peeked = await call(dsn, client, "shop.peek")
        assert kept.state == "succeeded"
        assert [fact.role for fact in await facts(shop)] == [role]
        assert trouble(peeked) == (
            "shop.peek: InsufficientPrivilegeError: permission denied for schema chronos"
            " (SQLSTATE 42501)"
        )
    finally:
        await shop.execute(f"drop owned by {role}; drop role {role}")


async def test_a_role_that_is_not_there_names_the_fix(
    dsn: str, shop: Connection, client: Client
) -> None:
    await make_function(shop, "keep", role="nobody_at_all")
    record = await call(dsn, client, "shop.keep")
    assert trouble(record) == (
        "shop.keep: cannot become the role 'nobody_at_all' (role \"nobody_at_all\" does not exist);"
        " grant it to the role the worker logs in as, or allow the function with another"
    )


async def test_what_a_function_sets_does_not_outlive_it(
    dsn: str, shop: Connection, client: Client
) -> None:
    """Not in the transaction, where our own statement follows, nor on the connection after it."""
    await make_function(
        shop,
        "keep",
        body="perform set_config('search_path', 'evil', false), set_config('role', 'none', false),"
        " set_config('statement_timeout', '1', false), set_config('chronos.task', '', false);",
    )
    await make_function(
        shop,
        "look",
        "jsonb_build_object('status', 'succeeded', 'payload', "
        "jsonb_build_object('path', current_setting('search_path'),"
        " 'timeout', current_setting('statement_timeout')))",
    )
    config = make_config(dsn, database={"dsn": dsn, "transaction_connections": 1})
    async with working(Runtime(Chronos(), config)):
        for _ in range(3):
            job = await client.enqueue(KIND, {"function": "shop.keep"}, max_attempts=1)
            assert (await ended(client, job.id)).state == "succeeded"
        job = await client.enqueue(KIND, {"function": "shop.look"}, max_attempts=1)
        record = await ended(client, job.id)
    assert record.result == {"path": "pg_catalog, shop, public, pg_temp", "timeout": "15s"}


async def test_a_function_finds_what_stands_beside_it_whatever_stands_in_pg_temp(
    dsn: str, shop: Connection, client: Client
) -> None:
    await shop.execute("create table shop.till (cents int); insert into shop.till values (7)")
    await make_function(
        shop, "shadow", body="create temp table if not exists till as select -1 as cents;"
    )
    await make_function(
        shop,
        "count",
        "jsonb_build_object('status', 'succeeded', 'payload',"
        " jsonb_build_object('cents', (select cents from till)))",
    )
    config = make_config(dsn, database={"dsn": dsn, "transaction_connections": 1})
    async with working(Runtime(Chronos(), config)):
        for name, result in (("shadow", {"kept": True}), ("count", {"cents": 7})):
            job = await client.enqueue(KIND, {"function": f"shop.{name}"}, max_attempts=1)
            record = await ended(client, job.id)
            assert (record.state, record.result) == ("succeeded", result)


async def test_what_is_not_allowed_or_not_there_names_the_fix(
    dsn: str, shop: Connection, client: Client
) -> None:
    await make_function(shop, "secret", is_allowed=False)
    assert trouble(await call(dsn, client, "shop.secret")) == (
        "shop.secret: tasks may not call it; allow it with `chronos-runtime functions allow"
        " shop.secret`, or by a row in chronos.allowed_functions"
    )
    await shop.execute("insert into chronos.allowed_functions values ('shop')")
    assert trouble(await call(dsn, client, "shop.missing")) == (
        "shop.missing: nothing of that name is there;"
        " create function shop.missing(jsonb) returns jsonb"
    )
    await shop.execute("create function shop.odd(n int, t text) returns void language sql as ''")
    assert trouble(await call(dsn, client, "shop.odd")) == (
        "shop.odd: there is shop.odd(n integer, t text) returns void;"
        " create function shop.odd(jsonb) returns jsonb"
    )
    assert (await call(dsn, client, "shop.secret")).state == "succeeded"


async def test_a_name_that_could_never_be_called_is_refused_at_enqueue(client: Client) -> None:
    with pytest.raises(PayloadError, match=r"payload of 'chronos.db_function': function: 'charge'"):
        await client.enqueue(KIND, {"function": "charge"})
    with pytest.raises(PayloadError, match="arguments: must be a JSON object"):
        await client.enqueue(KIND, {"function": "shop.charge", "arguments": [1]})
    with pytest.raises(PayloadError, match="unknown field `argument`"):
        await client.enqueue(KIND, {"function": "shop.charge", "argument": {}})


async def test_a_permission_taken_back_ends_and_a_dropped_function_is_found_out(
    dsn: str, shop: Connection, client: Client
) -> None:
    await make_function(shop, "keep")
    async with working(Runtime(Chronos(), make_config(dsn, functions={"resolve_s": 0.001}))):
        await run(client, "succeeded")
        await shop.execute("delete from chronos.allowed_functions")
        assert "tasks may not call it" in trouble(await run(client, "dead"))
    await shop.execute("insert into chronos.allowed_functions values ('shop')")
    async with working(Runtime(Chronos(), make_config(dsn))):
        await run(client, "succeeded")
        await shop.execute("drop function shop.keep(jsonb)")
        assert "UndefinedFunctionError" in trouble(await run(client, "dead"))
        assert "nothing of that name is there" in trouble(await run(client, "dead"))


async def run(client: Client, state: str) -> JobRecord:
    job = await client.enqueue(KIND, {"function": "shop.keep"}, max_attempts=1)
    record = await ended(client, job.id)
    assert record.state == state
    return record


async def test_runs_are_counted_by_how_they_ended(
    dsn: str, shop: Connection, client: Client
) -> None:
    await make_function(shop, "keep")
    await make_function(shop, "decline", """'{"status": "declined"}'::jsonb""")
    await make_function(shop, "mumble", "'{}'::jsonb")
    runtime = Runtime(Chronos(), make_config(dsn))
    async with working(runtime):
        for name in ("keep", "keep", "decline", "mumble", "missing"):
            job = await client.enqueue(KIND, {"function": f"shop.{name}"}, max_attempts=1)
            await ended(client, job.id)
    counted = {
        outcome: sample(
            runtime.metrics, "chronos_processor_runs_total", processor=KIND, outcome=outcome
        )
        for outcome in ("succeeded", "failed", "unsuccessful", "malformed", "refused")
    }
    assert counted == {"succeeded": 2, "failed": 0, "unsuccessful": 1, "malformed": 1, "refused": 1}
    assert sample(runtime.metrics, "chronos_processor_seconds_count", processor=KIND) == 5


@pytest.mark.parametrize(
    ("row", "constraint"),
    [
        (("pg_catalog", None, None, None), "reserved"),
        (("pg_temp", None, None, None), "reserved"),
        (("pg_temp_3", "f", None, None), "reserved"),
        (("pg_toast", None, None, None), "reserved"),
        (("information_schema", None, None, None), "reserved"),
        (("chronos", "note_fires", None, None), "reserved"),
        (("Shop", None, None, None), "schema_name"),
        (("shop; drop", None, None, None), "schema_name"),
        (("shop\n", None, None, None), "schema_name"),
        (("shop", 'f"', None, None), "function_name"),
        (("shop", "", None, None), "function_name"),
        (("shop", "f" * 64, None, None), "function_name"),
        (("shop", "f", "none", None), "role"),
        (("shop", "f", "", None), "role"),
        (("shop", "f", None, 0.0), "timeout_s"),
        (("shop", "f", None, float("nan")), "timeout_s"),
        (("shop", "f", None, float("inf")), "timeout_s"),
    ],
)
async def test_no_row_allows_what_may_never_be_called(
    connection: Connection, row: tuple[object, ...], constraint: str
) -> None:
    with pytest.raises(asyncpg.CheckViolationError) as caught:
        await connection.execute(
            "insert into chronos.allowed_functions values ($1, $2, $3, $4)", *row
        )
    assert caught.value.constraint_name == f"allowed_functions_{constraint}"
