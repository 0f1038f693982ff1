"""No name and no argument makes anything run that was not allowed: a corpus, and tripwires."""

import re
from pathlib import Path
from typing import Any

import asyncpg
import msgspec
import pytest

from chronos_runtime import Chronos, Client, Config, InputError, JobRecord, Runtime, Task
from chronos_runtime.function_name import FunctionName
from chronos_runtime.ids import new_job_id
from chronos_runtime.store.migrations import Connection
from chronos_runtime.store.postgres import PostgresStore
from tests.eventually import eventually
from tests.processors.shop import facts, make_function, make_shop
from tests.test_runtime import ENDED, make_config, working

CORPUS_MIN = 60
TRIPWIRES_MIN = 60
DEADLINE_S = 60.0
KIND = "chronos.db_function"
HOOKS = ("before_handler", "success_handler", "error_handler")

PATH = Path(__file__).parent / "injection_corpus.txt"
LINES = [
    line
    for line in PATH.read_text(encoding="ascii").splitlines()
    if line and not line.startswith("#")
]
WELL_SPELLED = re.compile(r"[a-z_][a-z0-9_]{0,62}\.[a-z_][a-z0-9_]{0,62}")

# In a schema that is allowed as a whole, each tripping if it is called, and none of one jsonb that
# returns one jsonb.
MISFITS = """
create function shop.by_text(t text) returns jsonb language sql as $$select shop.trip('{}')$$;
create function shop.by_json(j json) returns jsonb language sql as $$select shop.trip('{}')$$;
create function shop.by_any(a anyelement) returns jsonb language sql as $$select shop.trip('{}')$$;
create function shop.by_two(a jsonb, b jsonb) returns jsonb
    language sql as $$select shop.trip('{}')$$;
create function shop.by_default(a jsonb, b jsonb default '{}') returns jsonb
    language sql as $$select shop.trip('{}')$$;
create function shop.by_none() returns jsonb language sql as $$select shop.trip('{}')$$;
create function shop.by_list(variadic l jsonb[]) returns jsonb
    language sql as $$select shop.trip('{}')$$;
create function shop.by_array(l jsonb[]) returns jsonb language sql as $$select shop.trip('{}')$$;
create function shop.to_text(j jsonb) returns text language sql as $$select shop.trip('{}')::text$$;
create function shop.to_json(j jsonb) returns json language sql as $$select shop.trip('{}')::json$$;
create function shop.to_void(j jsonb) returns void language sql as $$select shop.trip('{}')$$;
create function shop.to_set(j jsonb) returns setof jsonb language sql as $$select shop.trip('{}')$$;
create function shop.to_table(j jsonb) returns table (a jsonb)
    language sql as $$select shop.trip('{}')$$;
create function shop.to_trigger() returns trigger
    language plpgsql as $$begin perform shop.trip('{}'); return null; end$$;
create procedure shop.procedure(j jsonb) language sql as $$select shop.trip('{}')$$;
create function shop.step(s jsonb, j jsonb) returns jsonb
    language sql as $$select shop.trip('{}')$$;
create aggregate shop.aggregate(jsonb) (sfunc = shop.step, stype = jsonb);
create type shop.kind as (a jsonb);
"""

_TRIPWIRE = """
create function {name}(told jsonb) returns jsonb language plpgsql
as $$
begin
    perform nextval('public.trips');
    return '{{"status": "succeeded"}}';
end
$$
"""


def lines(what: str) -> list[str]:
    """What the corpus has for one use."""
    return [line.partition(" ")[2] for line in LINES if line.partition(" ")[0] == what]


def names() -> list[object]:
    """Every name that must not lead anywhere."""
    spelled = [
        line.encode("ascii").decode("unicode_escape").replace("{63}", "a" * 63)
        for line in lines("function")
    ]
    return [*spelled, *(msgspec.json.decode(line) for line in lines("function_json"))]


HARMLESS = [msgspec.Raw(line.encode()) for line in lines("harmless")]


async def set_tripwire(connection: Connection, name: str) -> bool:
    """Create a function of exactly that name, if there can be one."""
    schema, dot, function = name.partition(".")
    if not dot:
        schema, function = "public", name
    if not schema or not function or "\x00" in name:
        return False
    quoted = ".".join('"' + part.replace('"', '""') + '"' for part in (schema, function))
    try:
        async with connection.transaction():
            await connection.execute(f"create schema if not exists {quoted.partition('.')[0]}")
    except asyncpg.PostgresError:
        pass  # A schema of the server's own: it is there.
    try:
        async with connection.transaction():
            await connection.execute(_TRIPWIRE.format(name=quoted))
    except asyncpg.PostgresError:
        return False
    return True


@pytest.fixture
async def shop(connection: Connection) -> Connection:
    """An allowed schema with one function to call, and tripwires wherever a name may lead."""
    await make_shop(connection)
    # A sequence: it counts what is rolled back, too.
    await connection.execute("create sequence public.trips; create sequence shop.kept")
    await connection.execute("set allow_system_table_mods = on")  # To trip in pg_catalog, too.
    body = "perform nextval('shop.kept');"
    await make_function(connection, "keep", body=body, is_allowed=False)
    assert await set_tripwire(connection, "shop.trip")
    await connection.execute(MISFITS)
    wired = 0
    for name in {name for name in names() if isinstance(name, str)}:
        if not (WELL_SPELLED.fullmatch(name) and name.startswith("shop.")):
            wired += await set_tripwire(connection, name)
    assert wired >= TRIPWIRES_MIN
    await connection.execute(
        "insert into chronos.allowed_functions values ('shop', null), ('open', 'kept')"
    )
    return connection


async def allow_more_than_can_be(connection: Connection) -> None:
    """As if somebody had broken the list: every schema is on it but those of well-spelled names."""
    for constraint in ("schema_name", "function_name", "reserved"):
        await connection.execute(
            f"alter table chronos.allowed_functions drop constraint allowed_functions_{constraint}"
        )
    await connection.execute(
        "insert into chronos.allowed_functions select nspname from pg_namespace"
        " where nspname not in ('shop', 'public', 'other', 'open', 'current_schema')"
    )


async def tripped(connection: Connection) -> int:
    """How many tripwires were called."""
    return await count(connection, "public.trips")


async def count(connection: Connection, sequence: str) -> int:
    found = await connection.fetchval(
        "select coalesce(pg_sequence_last_value($1::text::regclass), 0)", sequence
    )
    return int(found)


def make_app() -> Chronos:
    app = Chronos()

    @app.processor("push")
    async def push(task: Task, message: dict[str, Any]) -> str:
        if message.get("fails"):
            raise ValueError("no")
        return "sent"

    return app


def payloads() -> list[tuple[str, dict[str, Any]]]:
    """Every hostile name in every place a name can stand in, and hostile arguments."""
    found: list[tuple[str, dict[str, Any]]] = []
    for name in names():
        found.append((KIND, {"function": name, "arguments": {}}))
        if name is not None:  # A function that is null is none.
            found += [("push", {hook: name, "fails": hook == "error_handler"}) for hook in HOOKS]
    for line in lines("arguments_json"):
        found.append((KIND, {"function": "shop.keep", "arguments": msgspec.Raw(line.encode())}))
    return found


async def all_ended(client: Client, count: int) -> list[JobRecord]:
    """Every job there is, once all of them have ended."""

    async def look() -> list[JobRecord] | None:
        page = await client.list(limit=1_000)
        done = [job for job in page.jobs if job.state in ENDED]
        return done if len(done) == count else None

    found = await eventually(look, DEADLINE_S)
    assert found is not None
    return found


def test_the_corpus_is_large_and_says_everything_once() -> None:
    assert len(LINES) == len(set(LINES)) >= CORPUS_MIN
    assert {line.partition(" ")[0] for line in LINES} == {
        "function",
        "function_json",
        "arguments_json",
        "harmless",
    }


async def test_the_tripwires_would_tell(shop: Connection) -> None:
    for call in (
        """select "Shop"."keep"('{}')""",
        """select shop."keep""; select shop.trip('{}'); --"('{}')""",
        """select pg_catalog.trip('{}')""",
        """select chronos.note_fires('{}'::jsonb)""",
        """select shop.by_any('{}'::jsonb)""",
        """call shop.procedure('{}')""",
    ):
        before = await tripped(shop)
        await shop.execute(call)
        assert await tripped(shop) == before + 1, call


@pytest.mark.parametrize("is_list_broken", [False, True], ids=["list", "broken list"])
async def test_no_row_inserted_by_sql_makes_anything_run(
    dsn: str, shop: Connection, *, is_list_broken: bool
) -> None:
    """Past the client, so that only the worker stands in the way."""
    if is_list_broken:
        await allow_more_than_can_be(shop)
    hostile = payloads()
    legit = [(KIND, {"function": "shop.keep", "arguments": one}) for one in HARMLESS]
    rows = [(new_job_id(), kind, payload) for kind, payload in [*hostile, *legit]]
    await shop.executemany(
        "insert into chronos.jobs (id, kind, topic, max_attempts, payload)"
        " values ($1, $2, 'default', 1, $3)",
        [(id, kind, msgspec.json.encode(payload).decode()) for id, kind, payload in rows],
    )
    async with Client.connect(dsn) as client, working(Runtime(make_app(), everything(dsn))):
        ended = {job.id: job for job in await all_ended(client, len(rows))}
    states = [ended[id].state for id, _, _ in rows]
    assert states[: len(hostile)] == ["dead"] * len(hostile)
    assert states[len(hostile) :] == ["succeeded"] * len(legit)
    assert await tripped(shop) == 0
    await only_these_were_kept(shop, [id for id, _, _ in rows[len(hostile) :]])


def everything(dsn: str) -> Config:
    return make_config(dsn, functions={"timeout_s": 5})


async def only_these_were_kept(shop: Connection, ids: list[Any]) -> None:
    """The one function that may be called was, once for each, with its arguments as they are."""
    assert await count(shop, "shop.kept") == len(HARMLESS)
    kept = await facts(shop)
    assert [fact.name for fact in kept] == ["keep"] * len(HARMLESS)
    assert {fact.task["id"] for fact in kept} == {str(id) for id in ids}
    same = await shop.fetchval(
        "select count(*) from unnest($1::jsonb[]) as given (told)"
        " join shop.facts on facts.told = given.told",
        [bytes(one).decode() for one in HARMLESS],
    )
    assert same == len(HARMLESS)


async def test_nothing_that_is_enqueued_makes_anything_run(dsn: str, shop: Connection) -> None:
    refused, enqueued = [], []
    app = make_app()
    async with Client.connect(dsn, app) as client:
        for kind, payload in payloads():
            try:
                await client.enqueue(kind, payload, max_attempts=1)
                enqueued.append(payload)
            except InputError:
                refused.append(payload)
        legit = [
            await client.enqueue(KIND, {"function": "shop.keep", "arguments": one}, max_attempts=1)
            for one in HARMLESS
        ]
        async with working(Runtime(app, everything(dsn))):
            ended = {job.id: job for job in await all_ended(client, len(enqueued) + len(HARMLESS))}
    # What is not well spelled or never allowed is the producer's error, and never a row.
    assert all(
        WELL_SPELLED.fullmatch(str(payload.get("function") or next(iter(payload.values()))))
        for payload in enqueued
    )
    assert len(refused) > len(enqueued) > 0
    mine = {job.id for job in legit}
    assert {job.state for id, job in ended.items() if id in mine} == {"succeeded"}
    assert {job.state for id, job in ended.items() if id not in mine} == {"dead"}
    assert await tripped(shop) == 0
    await only_these_were_kept(shop, sorted(mine))


@pytest.mark.parametrize(
    "schema", ["pg_catalog", "information_schema", "chronos", "pg_toast", "pg_temp"]
)
async def test_a_reserved_schema_is_not_allowed_whatever_the_list_says(
    dsn: str, shop: Connection, schema: str
) -> None:
    await allow_more_than_can_be(shop)
    store = PostgresStore(Config.of({"database": {"dsn": dsn}}).database)
    try:
        found = await store.functions.resolve_function(FunctionName(schema, "trip"))
    finally:
        await store.close()
    assert (found.is_allowed, found.oid) == (False, None)
