"""A schema of somebody's business logic, and what is asked of it in tests of SQL functions."""

from typing import Any
from uuid import UUID

import msgspec

from chronos_runtime.store.migrations import Connection

_TABLES = """
create schema shop;
create table shop.facts (
    at bigint generated always as identity, name text, told jsonb, task jsonb, role text
);
create function shop.note(name text, told jsonb) returns void
language sql
as $$
    insert into shop.facts (name, told, task, role)
    values (name, told, nullif(current_setting('chronos.task', true), '')::jsonb, current_user)
$$;
grant usage on schema shop to public;
grant insert, select on shop.facts to public;
"""

_FUNCTION = """
create function shop.{name}(told jsonb) returns jsonb
language plpgsql
as $$
begin
    perform shop.note('{name}', told);
    {body}
    return {returned};
end
$$
"""

SUCCEEDED = """'{"status": "succeeded", "payload": {"kept": true}}'::jsonb"""


async def make_shop(connection: Connection) -> None:
    """The schema, with a table of facts and no function that tasks could call."""
    await connection.execute(_TABLES)


async def make_function(
    connection: Connection,
    name: str,
    returned: str = SUCCEEDED,
    *,
    body: str = "",
    is_allowed: bool = True,
    role: str | None = None,
    timeout_s: float | None = None,
) -> None:
    """A function that notes what it was told, runs `body`, and returns an envelope."""
    await connection.execute(_FUNCTION.format(name=name, returned=returned, body=body))
    if is_allowed:
        await connection.execute(
            "insert into chronos.allowed_functions (schema_name, function_name, role, timeout_s)"
            " values ('shop', $1, $2, $3)",
            name,
            role,
            timeout_s,
        )


class Fact(msgspec.Struct, frozen=True):
    """What a function noted."""

    name: str
    told: Any
    task: Any
    role: str


async def facts(connection: Connection, task: UUID | None = None) -> list[Fact]:
    """What was noted and committed, in order; of one task, if one is given."""
    rows = await connection.fetch("select name, told, task, role from shop.facts order by at")
    found = [Fact(row["name"], _json(row["told"]), _json(row["task"]), row["role"]) for row in rows]
    return [one for one in found if task is None or (one.task or {}).get("id") == str(task)]


def _json(text: str | None) -> Any:
    return None if text is None else msgspec.json.decode(text)
